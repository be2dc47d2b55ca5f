"""The picture becomes a sequence: cut into patches, each projected to a vector.

B pictures, C channels, H×W pixels, patches of P×P, N patches, D numbers per token.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class PatchEmbedding(nn.Module):
    """Patches → linear projection: one matrix product, with the numbers of a convolution of kernel = patch, stride = step."""

    def __init__(self, channels: int, width: int, patch: tuple[int, int], step: tuple[int, int], bias: bool = True) -> None:
        super().__init__()
        self.patch, self.step = patch, step
        self.projection = nn.Conv2d(channels, width, patch, step, bias=bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        pieces = cut(images, self.patch) if self.patch == self.step else cut_overlapping(images, self.patch, self.step)
        return F.linear(pieces, self.projection.weight.flatten(1), self.projection.bias)  # (B, N, D)


def cut(images: torch.Tensor, patch: tuple[int, int]) -> torch.Tensor:
    """Non-overlapping patches, row by row, each flattened: (B, C, H, W) → (B, N, C·P·P)."""
    batch, channels, height, width = images.shape
    rows, columns = height // patch[0], width // patch[1]
    pieces = images.reshape(batch, channels, rows, patch[0], columns, patch[1])
    return pieces.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, channels * patch[0] * patch[1])


def cut_overlapping(images: torch.Tensor, patch: tuple[int, int], step: tuple[int, int]) -> torch.Tensor:
    """Patches that overlap, row by row, each flattened: (B, C, H, W) → (B, N, C·P·P)."""
    padded = pad_for_overlap(images, patch, step)
    # As views and one copy; F.unfold does one picture at a time on a GPU.
    pieces = padded.unfold(2, patch[0], step[0]).unfold(3, patch[1], step[1])  # (B, C, h, w, P, P)
    return pieces.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def pad_for_overlap(images: torch.Tensor, patch: tuple[int, int], step: tuple[int, int]) -> torch.Tensor:
    """Zeros around the picture, so that overlapping patches still make a grid of size / step."""
    extra_rows, extra_columns = patch[0] - step[0], patch[1] - step[1]
    top, left = extra_rows // 2, extra_columns // 2
    return F.pad(images, (left, extra_columns - left, top, extra_rows - top))
