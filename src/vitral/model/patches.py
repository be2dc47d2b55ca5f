"""The picture becomes a sequence: cut into patches, each projected to a vector.

B pictures, C channels, H×W pixels, patches of P×P, N patches, D numbers per token.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class PatchEmbedding(nn.Module):
    """Patches → linear projection; the same numbers as a convolution with kernel = patch, stride = step."""

    def __init__(self, channels: int, width: int, patch: tuple[int, int], step: tuple[int, int], bias: bool = True) -> None:
        super().__init__()
        self.patch, self.step = patch, step
        self.projection = nn.Conv2d(channels, width, patch, step, bias=bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.patch == self.step:
            # One matrix product; on a GPU faster than the convolution it equals.
            return F.linear(cut(images, self.patch), self.projection.weight.flatten(1), self.projection.bias)  # (B, N, D)
        maps = self.projection(pad_for_overlap(images, self.patch, self.step))  # (B, D, h, w)
        return maps.flatten(2).transpose(1, 2)  # (B, N, D)


def cut(images: torch.Tensor, patch: tuple[int, int]) -> torch.Tensor:
    """Non-overlapping patches, row by row, each flattened: (B, C, H, W) → (B, N, C·P·P)."""
    batch, channels, height, width = images.shape
    rows, columns = height // patch[0], width // patch[1]
    pieces = images.reshape(batch, channels, rows, patch[0], columns, patch[1])
    return pieces.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, channels * patch[0] * patch[1])


def pad_for_overlap(images: torch.Tensor, patch: tuple[int, int], step: tuple[int, int]) -> torch.Tensor:
    """Zeros around the picture, so that overlapping patches still make a grid of size / step."""
    extra_rows, extra_columns = patch[0] - step[0], patch[1] - step[1]
    top, left = extra_rows // 2, extra_columns // 2
    return F.pad(images, (left, extra_columns - left, top, extra_rows - top))
