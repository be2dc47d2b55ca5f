"""Answers in fp8, and how often bf16 would have given the same: nobody should have to take that on trust."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from vitral.cost.precision import Forward, autocast
from vitral.kernels.fp8 import in_eight_bits, need_eight_bits

COMPARED = 8
"""Batches that are answered in bf16 as well, spread over all."""


class AnsweringInFp8:
    """A model's answers for batch after batch, its blocks in fp8 with scales found beforehand; some batches in bf16 as well.

    scales     batches of images to find the scales with; None: the first batch that comes
    batches    how many will come, as far as that is known: the compared ones are spread over them
    around     what the model's pass is part of, such as the mean with the mirror image's
    """

    name = "fp8"

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        scales: Iterable[Tensor] | None = None,
        *,
        batches: int = 1,
        around: Callable[[Any], Forward] = lambda model: model,
    ) -> None:
        need_eight_bits(device)
        self.model, self.device, self.around = model, device, around
        self.every = max(1, batches // COMPARED)
        self.same = self.compared = 0
        self._exact = around(model)
        self._eight: Forward | None = None if scales is None else self._made(scales)
        self._calls = self._full = 0

    def __call__(self, images: Tensor) -> Tensor:
        if self._eight is None:
            self._eight = self._made([images])
        with autocast(torch.bfloat16, self.device):
            found = self._eight(self._filled_up(images))[: len(images)].float()
            if self._calls % self.every == 0 and self._calls < COMPARED * self.every:
                exact = self._exact(images)
                self.same += int((exact.argmax(dim=1) == found.argmax(dim=1)).sum())
                self.compared += len(images)
        self._calls += 1
        return found

    def __str__(self) -> str:
        return f"fp8: the same answer as bf16 on {self.same:,} of {self.compared:,} pictures"

    def _made(self, scales: Iterable[Tensor]) -> Forward:
        eight = in_eight_bits(self.model, scales)
        if self.device.type == "cuda":
            # Rounding to eight bits is a pass over memory of its own unless it is done where the numbers are made. Blocks are alike.
            for block in eight.get_submodule("blocks").children():
                block.compile(dynamic=False)
        return self.around(eight)

    def _filled_up(self, images: Tensor) -> Tensor:
        """The last, smaller batch at the size of the others: another size would be another compilation."""
        self._full = max(self._full, len(images))
        missing = self._full - len(images) if self.device.type == "cuda" else 0
        return torch.cat([images, images.new_zeros(missing, *images.shape[1:])]) if missing else images
