"""In which number format a step computes, and whether it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from vitral.base.errors import ConfigError
from vitral.base.progress import say
from vitral.config import ModelConfig
from vitral.config.formats import Precision
from vitral.cost.flops import vit_flops

Forward = Callable[[torch.Tensor], torch.Tensor]
WORTH = 5e8
"""FLOPs of an image's forward pass from which bf16 is worth a check."""
_SAME_DIRECTION = 0.999
"""Least cosine of an output in bf16 with the same in fp32; ViT-Ti has 0.9998 on noise."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def dtype_of(precision: str, device: torch.device) -> torch.dtype:
    """`auto` is bf16 on a GPU that has it, fp32 elsewhere."""
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    if precision == "fp16" and device.type != "cuda":
        raise ConfigError(f"fp16 training needs a CUDA GPU, this is {device.type}", "use --precision bf16 or fp32")
    return DTYPES[precision]


def has_bf16(device: torch.device) -> bool:
    """Whether bf16 is quicker there than fp32. A CPU needs instructions of its own for it (avx512_bf16, amx_bf16)."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    can = getattr(torch.cpu, "get_capabilities", dict)()
    return device.type == "cpu" and bool(can.get("avx512_bf16") or can.get("amx_bf16"))


def worth_bf16(model: torch.nn.Module) -> bool:
    """Whether it has so much to compute that bf16 pays: a ViT of some size."""
    config = getattr(model, "config", None)
    return isinstance(config, ModelConfig) and config.family == "vit" and vit_flops(config).total >= WORTH


class Answering:
    """`forward` for batch after batch, in bf16 where a CPU is quicker with it and the first batch has the same answers in both.

    The first batch is answered in fp32 and, once there is a second, again in bf16: the same most probable class for every image, and
    outputs in the same direction; features (`answers` = False) need only the latter. `dtype` says what came of it. Elsewhere, for a
    small model, and where the precision is given, there is nothing to find out: on a GPU `auto` is what `forward` itself does.
    """

    def __init__(
        self, forward: Forward, device: torch.device, precision: Precision = "auto", *, worth: bool = True, answers: bool = True
    ) -> None:
        self.forward, self.device, self.answers = forward, device, answers
        self.dtype = DTYPES[precision] if precision != "auto" else torch.float32
        self._open = precision == "auto" and device.type == "cpu" and worth and has_bf16(device)
        self._first: tuple[torch.Tensor, torch.Tensor] | None = None

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        if self._open and self._first is not None:
            self._open = False
            images_before, exact = self._first
            self._first = None
            with autocast(torch.bfloat16, self.device):
                if same_answers(exact, self.forward(images_before), self.answers):
                    self.dtype = torch.bfloat16
                    say("from here on in bf16: the first batch has the same answers in fp32, which --precision fp32 (precision=) keeps to")
        with autocast(self.dtype, self.device):
            outputs = self.forward(images)
        if self._open:
            self._first = images, outputs
        return outputs.float() if outputs.dtype == torch.bfloat16 else outputs

    @property
    def name(self) -> str:
        return next(name for name, dtype in DTYPES.items() if dtype == self.dtype)


def same_answers(exact: torch.Tensor, quick: torch.Tensor, answers: bool = True) -> bool:
    """(B, K) twice: every row in the same direction, and with the same largest number where these are answers."""
    quick = quick.float()
    close = bool((torch.cosine_similarity(exact.float(), quick, dim=1) >= _SAME_DIRECTION).all())
    return close and (not answers or bool((exact.argmax(dim=1) == quick.argmax(dim=1)).all()))


def autocast(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[Any]:
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


def is_compiled(setting: str, device: torch.device) -> bool:
    """What `compile` = yes, max, no or auto means on this device: auto compiles where it pays, on CUDA."""
    return setting in ("yes", "max") or (setting == "auto" and device.type == "cuda")
