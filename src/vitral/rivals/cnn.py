"""A small CNN for 32×32 images: three stages of two 3×3 convolutions, then three linear layers.

It is the CNN of a student report (R2 in docs/results/reports.md), which set a ViT beside it: 5,852,234 parameters for 3 channels and
10 classes at its width of 32. Other widths scale every layer.
"""

from __future__ import annotations

import torch
from torch import nn

from vitral.base.errors import ConfigError
from vitral.config import ModelConfig
from vitral.model.classifier import Classifier
from vitral.model.tape import Tape

_STAGES = ((1, 2), (4, 4), (8, 8))
"""Channels of the two convolutions of each stage, in widths."""
HIDDEN = (32, 16)
"""Numbers in the two hidden layers, in widths."""


class CNN(Classifier):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        rows, columns = (side // 2 ** len(_STAGES) for side in config.image_size)
        if not rows or not columns:
            raise ConfigError(f"image {config.image_size[0]}×{config.image_size[1]} is too small for the CNN", "use at least 8×8 pixels")
        self.stages = nn.ModuleList()
        channels = config.channels
        for first, second in _STAGES:
            self.stages.append(_stage(channels, first * config.width, second * config.width))
            channels = second * config.width
        wide, narrow = (factor * config.width for factor in HIDDEN)
        self.hidden = nn.Sequential(nn.Flatten(), nn.Linear(channels * rows * columns, wide), nn.ReLU(), nn.Linear(wide, narrow), nn.ReLU())
        self._make_head()

    def _make_head(self) -> None:
        self.head = nn.Linear(HIDDEN[-1] * self.config.width, self.config.classes) if self.config.classes else nn.Identity()

    def forward(self, images: torch.Tensor, tape: Tape | None = None) -> torch.Tensor:
        self.check_images(images)
        maps = images
        for index, stage in enumerate(self.stages):
            maps = stage(maps)
            if tape is not None:
                maps = tape.record(f"stages.{index}.output", maps)
        pooled = self.hidden(maps)  # (B, D)
        if tape is not None:
            pooled = tape.record("pooled", pooled)
        logits = self.head(pooled)  # (B, K)
        return logits if tape is None else tape.record("logits", logits)

    def tape_names(self) -> list[str]:
        return [*self.map_names(), "pooled", "logits"]

    def map_names(self) -> list[str]:
        return [f"stages.{index}.output" for index in range(len(_STAGES))]


def _stage(channels: int, first: int, second: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, first, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(first, second, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(second),
    )
