"""Number formats by name: what answers, and what trainings, may be computed in. `cost.precision` says what they mean on a device."""

from __future__ import annotations

from typing import Literal

Precision = Literal["auto", "fp32", "bf16"]
"""Of answers and of features."""
TrainingPrecision = Literal["auto", "fp32", "bf16", "fp16"]
