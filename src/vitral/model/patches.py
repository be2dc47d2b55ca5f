"""The image becomes a sequence: cut into patches, each projected to a vector.

B images, C channels, H×W pixels, patches of P×P, N patches, D numbers per token.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class PatchEmbedding(nn.Module):
    """Patches → linear projection: one matrix product, with the numbers of a convolution whose kernel is a patch."""

    def __init__(self, channels: int, width: int, patch: tuple[int, int], stride: tuple[int, int], bias: bool = True) -> None:
        super().__init__()
        self.patch, self.stride = patch, stride
        self.projection = nn.Conv2d(channels, width, patch, stride, bias=bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = cut(images, self.patch) if self.patch == self.stride else cut_overlapping(images, self.patch, self.stride)
        return F.linear(patches, self.projection.weight.flatten(1), self.projection.bias)  # (B, N, D)


def cut(images: torch.Tensor, patch: tuple[int, int]) -> torch.Tensor:
    """Non-overlapping patches, row by row, each flattened: (B, C, H, W) → (B, N, C·P·P)."""
    batch, channels, height, width = images.shape
    rows, columns = height // patch[0], width // patch[1]
    patches = images.reshape(batch, channels, rows, patch[0], columns, patch[1])
    return patches.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, channels * patch[0] * patch[1])


def cut_overlapping(images: torch.Tensor, patch: tuple[int, int], stride: tuple[int, int]) -> torch.Tensor:
    """Patches that overlap, row by row, each flattened: (B, C, H, W) → (B, N, C·P·P)."""
    padded = _pad_for_overlap(images, patch, stride)
    # As views and one copy; F.unfold does one image at a time on a GPU.
    patches = padded.unfold(2, patch[0], stride[0]).unfold(3, patch[1], stride[1])  # (B, C, h, w, P, P)
    return patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def _pad_for_overlap(images: torch.Tensor, patch: tuple[int, int], stride: tuple[int, int]) -> torch.Tensor:
    """Zeros around the image, so that overlapping patches still make a grid of size / stride."""
    extra_rows, extra_columns = patch[0] - stride[0], patch[1] - stride[1]
    top, left = extra_rows // 2, extra_columns // 2
    return F.pad(images, (left, extra_columns - left, top, extra_rows - top))
