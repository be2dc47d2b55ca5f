"""Number formats by name: what answers, and what trainings, may be computed in. `cost.precision` says what they mean on a device."""

from __future__ import annotations

from typing import Literal

Precision = Literal["auto", "fp32", "bf16"]
"""Of features, and of whatever is exact enough to be compared."""
AnswerPrecision = Literal["auto", "fp32", "bf16", "fp8"]
"""Of answers. fp8 has to be asked for: it needs a GPU that has it, and answers change now and then."""
TrainingPrecision = Literal["auto", "fp32", "bf16", "fp16"]
