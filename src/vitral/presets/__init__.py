"""Named models and named runs."""

from vitral.presets.models import MODELS, model
from vitral.presets.runs import RUNS, run

__all__ = ["MODELS", "RUNS", "model", "run"]
