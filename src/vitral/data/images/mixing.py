"""MixUp and CutMix: two pictures and their labels in one, decided per batch from the run's address, not from a global state.

The partner of each picture is another one of its group of GROUP neighbours in the (shuffled) batch, so a rank that holds
whole groups needs no picture of another rank, and any number of ranks mixes the same pictures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from vitral.data.keys import generator

GROUP = 8
_MIXUP_ALPHA = 0.8
"""Both parameters of the Beta law of MixUp's lam; CutMix's is uniform."""


@dataclass(frozen=True)
class Mix:
    """How one batch is mixed."""

    kind: str
    """mixup or cutmix."""
    lam: float
    """Weight of each picture's own label."""
    shift: int
    """Partner of row i in a group: row (i + shift) modulo the group's length."""
    box: tuple[int, int, int, int] = (0, 0, 0, 0)
    """CutMix: top, bottom, left, right of the pasted rectangle."""


def draw_mix(mixup: float, cutmix: float, size: tuple[int, int], *address: int | str) -> Mix | None:
    """What happens to the batch at this address: CutMix with chance `cutmix`, else MixUp with chance `mixup`, else nothing."""
    if mixup <= 0 and cutmix <= 0:
        return None
    draw = generator(*address, "mixing")
    chance, shift = draw.random(), int(draw.integers(1, GROUP))
    if chance < cutmix:
        height, width = size
        side = math.sqrt(1 - draw.random())
        down, across = int(height * side) // 2, int(width * side) // 2
        row, column = int(draw.integers(height)), int(draw.integers(width))
        top, bottom, left, right = max(0, row - down), min(height, row + down), max(0, column - across), min(width, column + across)
        return Mix("cutmix", 1 - (bottom - top) * (right - left) / (height * width), shift, (top, bottom, left, right))
    if chance < cutmix + mixup:
        return Mix("mixup", float(draw.beta(_MIXUP_ALPHA, _MIXUP_ALPHA)), shift)
    return None


def partners(first: int, last: int, total: int, shift: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Partner of each row from `first` to `last` of a batch of `total`, relative to `first`; both lie on group borders."""
    rows = torch.arange(first, last, device=device)  # made on the device: nothing is copied to it
    start = rows // GROUP * GROUP
    return start - first + (rows - start + shift) % (total - start).clamp(max=GROUP)


def whole_groups(low: int, high: int, total: int) -> tuple[int, int]:
    """The rows from `low` to `high` of a batch of `total`, widened to whole groups."""
    return low // GROUP * GROUP, min(total, -(-high // GROUP) * GROUP)


def mix_images(images: torch.Tensor, partner: torch.Tensor, mix: Mix) -> torch.Tensor:
    """(B, C, H, W) mixed with their partners."""
    if mix.kind == "mixup":
        return torch.lerp(images[partner], images, mix.lam)
    top, bottom, left, right = mix.box
    mixed = images.clone()
    mixed[:, :, top:bottom, left:right] = images[partner, :, top:bottom, left:right]
    return mixed
