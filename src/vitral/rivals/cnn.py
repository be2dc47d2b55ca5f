"""The small CNN of report R2: three stages of two 3×3 convolutions, then three linear layers.

5,852,234 parameters for 32×32 pictures, 3 channels, 10 classes.
"""

from __future__ import annotations

import torch
from torch import nn

from vitral.base.errors import ConfigError
from vitral.config import ModelConfig
from vitral.model.classifier import Classifier
from vitral.model.tape import Tape

STAGES = ((32, 64), (128, 128), (256, 256))


class CNN(Classifier):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        height, width = (side // 2 ** len(STAGES) for side in config.image_size)
        if not height or not width:
            raise ConfigError(f"image {config.image_size[0]}×{config.image_size[1]} is too small for the CNN", "use at least 8×8 pixels")
        self.stages = nn.ModuleList()
        channels = config.channels
        for first, second in STAGES:
            self.stages.append(_stage(channels, first, second))
            channels = second
        self.hidden = nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU())
        self.head = nn.Linear(512, config.classes) if config.classes else nn.Identity()

    def forward(self, images: torch.Tensor, tape: Tape | None = None) -> torch.Tensor:
        self.check_images(images)
        maps = images
        for index, stage in enumerate(self.stages):
            maps = stage(maps)
            if tape is not None:
                maps = tape.record(f"stages.{index}.output", maps)
        pooled = self.hidden(maps)  # (B, 512)
        if tape is not None:
            pooled = tape.record("pooled", pooled)
        logits = self.head(pooled)  # (B, K)
        return logits if tape is None else tape.record("logits", logits)

    def tape_names(self) -> list[str]:
        return [*self.map_names(), "pooled", "logits"]

    def map_names(self) -> list[str]:
        return [f"stages.{index}.output" for index in range(len(STAGES))]


def _stage(channels: int, first: int, second: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, first, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(first, second, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(second),
    )
