"""Pictures whose truth is known, because it was put there: a patch that decides the class, four pictures in one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from vitral.data.images.preprocess import Preprocess
from vitral.look.maps import patch_edges
from vitral.model.classifier import Classifier


def _trigger(model: Classifier, image: torch.Tensor, corner: tuple[int, int], size: int, grid: tuple[int, int]) -> torch.Tensor:
    """The image with a black and white chequered square pasted in, `size` patches a side."""
    down, across = patch_edges(image.shape[1], grid[0]), patch_edges(image.shape[2], grid[1])
    top, bottom = down[corner[0]], down[corner[0] + size]
    left, right = across[corner[1]], across[corner[1] + size]
    cell = max(1, (bottom - top) // (4 * size))
    chequers = (torch.arange(bottom - top)[:, None] // cell + torch.arange(right - left) // cell) % 2
    pixels = (255 * chequers).to(torch.uint8).expand(image.shape[0], -1, -1)
    out = image.clone()
    out[:, top:bottom, left:right] = Preprocess.of(model).normalise(pixels).to(image)
    return out


class _Planted(NamedTuple):
    """Images with a trigger each, and where it is."""

    images: torch.Tensor
    """(B, C, H, W)"""
    inside: np.ndarray
    """(B, h, w) booleans"""


def with_triggers(model: Classifier, images: torch.Tensor, size: int, grid: tuple[int, int], seed: int) -> _Planted:
    """Each image with a trigger in a place of its own."""
    draw = np.random.default_rng(seed)
    inside = np.zeros((len(images), *grid), bool)
    out = []
    for index, image in enumerate(images):
        row, column = (int(draw.integers(0, count - size + 1)) for count in grid)
        inside[index, row : row + size, column : column + size] = True
        out.append(_trigger(model, image, (row, column), size, grid))
    return _Planted(torch.stack(out), inside)


def mosaic(images: torch.Tensor) -> torch.Tensor:
    """Four images (4, C, H, W), each at half its size, as one (C, H, W): in reading order."""
    height, width = images.shape[-2:]
    top, left = height // 2, width // 2
    out = torch.zeros_like(images[0])
    corners = ((0, top, 0, left), (0, top, left, width), (top, height, 0, left), (top, height, left, width))
    for image, (first, last, start, end) in zip(images, corners, strict=True):
        small = F.interpolate(image[None], (last - first, end - start), mode="bilinear", align_corners=False, antialias=True)
        out[:, first:last, start:end] = small[0]
    return out


def quadrant(number: int, grid: tuple[int, int]) -> np.ndarray:
    """(h, w): the patches of one of a mosaic's images; of a grid with a middle row or column, what lies on both sides is nobody's."""
    rows, columns = np.arange(grid[0]) + 0.5, np.arange(grid[1]) + 0.5
    half = grid[0] / 2, grid[1] / 2
    down = rows < half[0] - 0.49 if number < 2 else rows > half[0] + 0.49
    across = columns < half[1] - 0.49 if number % 2 == 0 else columns > half[1] + 0.49
    return down[:, None] & across
