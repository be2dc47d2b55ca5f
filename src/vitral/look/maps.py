"""From numbers per token to a heat map over the original picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vitral.base.numbers import to_double, to_numpy
from vitral.draw.heatmap import Heatmap
from vitral.model.tape import Tape


def to_grid(tape: Tape, row: torch.Tensor) -> np.ndarray:
    """One number per token (T,) → the patches' grid (h, w); tokens before the patches are left out."""
    return to_numpy(to_double(row[tape.prefix :])).reshape(tape.grid)


def patch_edges(pixels: int, count: int) -> list[int]:
    """Where the patches of a side begin, and where the last one ends. `patch_edges(32, 14)` starts 0, 2, 5, 7, 9, 11."""
    return [round(index * pixels / count) for index in range(count + 1)]


def to_patches(pixels: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Sums of (H, W) numbers over the patches of a grid; where it does not divide the image, patches are a pixel larger or smaller."""
    for axis, count in enumerate(grid):
        pixels = np.add.reduceat(pixels, patch_edges(pixels.shape[axis], count)[:-1], axis=axis)
    return pixels


def joined(*notes: str) -> str:
    """What a reader must know, in one line."""
    return "; ".join(note for note in notes if note)


def heat(tape: Tape, item: int, grid: np.ndarray, method: str, *notes: str, at: int | None = None, **facts: Any) -> Heatmap:
    """A heat map that knows its original picture; `at`: the picture's index on this tape where it differs from `item`."""
    picture = tape.pictures[item if at is None else at] if tape.pictures else None
    original, box = (picture.original, picture.box) if picture else (None, None)
    return Heatmap(grid, method, item=item, original=original, box=box, note=joined(*notes), **facts)
