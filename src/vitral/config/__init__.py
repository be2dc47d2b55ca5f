"""What to build, what to train it on, and how: frozen dataclasses, checked when made, to and from JSON.

A config is what somebody *asks* for: a model may leave its image size, channels and classes open (None), to be what the data or the
weights say. `run.resolve` settles them, and from then on nothing is open. Impossible combinations are refused here, by name, before
anything is spent.
"""

from __future__ import annotations

from vitral.config.data import DataConfig
from vitral.config.model import OPEN, STEM_REDUCTION, Family, ModelConfig
from vitral.config.pretrain import PretrainConfig
from vitral.config.run import TUNED, RunConfig, from_dict, run_name, to_dict
from vitral.config.train import TrainConfig

__all__ = [
    "OPEN",
    "STEM_REDUCTION",
    "TUNED",
    "DataConfig",
    "Family",
    "ModelConfig",
    "PretrainConfig",
    "RunConfig",
    "TrainConfig",
    "from_dict",
    "run_name",
    "to_dict",
]
