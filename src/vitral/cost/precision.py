"""In which number format a step computes, and whether it is compiled."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from vitral.base.errors import ConfigError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def dtype_of(precision: str, device: torch.device) -> torch.dtype:
    """`auto` is bf16 on a GPU that has it, fp32 elsewhere."""
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    if precision == "fp16" and device.type != "cuda":
        raise ConfigError(f"fp16 training needs a CUDA GPU, this is {device.type}", "use --precision bf16 or fp32")
    return DTYPES[precision]


def autocast(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[Any]:
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


def is_compiled(setting: str, device: torch.device) -> bool:
    """What `compile` = yes, max, no or auto means on this device: auto compiles where it pays, on CUDA."""
    return setting in ("yes", "max") or (setting == "auto" and device.type == "cuda")
