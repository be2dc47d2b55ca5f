"""The hybrid: a small BiT-style ResNet stem whose feature map is cut into tokens, then a ViT.

BiT-style: group norm and weight-standardised convolutions, so that it behaves the same at any batch size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from vitral.config import ModelConfig
from vitral.model.vit import ViT

WIDTHS = (64, 128)
GROUPS = 32


class _StandardisedConv(nn.Conv2d):
    """A convolution whose filters are shifted and scaled to mean 0, variance 1 before use."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True, correction=0)
        weight = (self.weight - mean) * torch.rsqrt(variance + 1e-10)
        return F.conv2d(input, weight, self.bias, self.stride, self.padding)


class _Residual(nn.Module):
    """Pre-activation residual unit of two 3×3 convolutions."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(GROUPS, channels)
        self.conv1 = _StandardisedConv(channels, width, 3, stride, 1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, width)
        self.conv2 = _StandardisedConv(width, width, 3, 1, 1, bias=False)
        self.shortcut = _StandardisedConv(channels, width, 1, stride, bias=False) if stride > 1 or channels != width else None

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        ready = F.relu(self.norm1(maps))
        update = self.conv2(F.relu(self.norm2(self.conv1(ready))))
        return update + (maps if self.shortcut is None else self.shortcut(ready))


class _ResNetStem(nn.Sequential):
    """(B, C, H, W) → (B, 128, ⌈H/4⌉, ⌈W/4⌉)."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            _StandardisedConv(channels, WIDTHS[0], 3, 2, 1, bias=False),
            _Residual(WIDTHS[0], WIDTHS[0], 1),
            _Residual(WIDTHS[0], WIDTHS[1], 2),
            _Residual(WIDTHS[1], WIDTHS[1], 1),
            nn.GroupNorm(GROUPS, WIDTHS[1]),
            nn.ReLU(),
        )


def hybrid(config: ModelConfig) -> ViT:
    return ViT(config, stem=_ResNetStem(config.channels), stem_channels=WIDTHS[-1])
