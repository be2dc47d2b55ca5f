"""torchvision's ResNets behind our interface; for small images without the first down-sampling."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from vitral.base.lazy import needed
from vitral.config import ModelConfig
from vitral.model.classifier import Classifier
from vitral.model.tape import Tape

SMALL = 64
"""Up to this side an image would be a handful of pixels after the usual stem: 3×3 convolution, no pooling instead."""


class ResNet(Classifier):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        models = needed("torchvision.models", "a ResNet")
        self.network: Any = getattr(models, config.family)(weights=None, num_classes=max(1, config.classes))
        small = max(config.image_size) <= SMALL
        if small:
            self.network.conv1 = nn.Conv2d(config.channels, 64, 3, stride=1, padding=1, bias=False)
            self.network.maxpool = nn.Identity()
        elif config.channels != 3:
            self.network.conv1 = nn.Conv2d(config.channels, 64, 7, stride=2, padding=3, bias=False)
        if small or config.channels != 3:
            nn.init.kaiming_normal_(self.network.conv1.weight, mode="fan_out", nonlinearity="relu")
        if not config.classes:
            self.network.fc = nn.Identity()

    def _make_head(self) -> None:
        self.network.fc = nn.Linear(self.network.inplanes, self.config.classes) if self.config.classes else nn.Identity()

    def forward(self, images: torch.Tensor, tape: Tape | None = None) -> torch.Tensor:
        self.check_images(images)
        network = self.network
        maps = network.maxpool(network.relu(network.bn1(network.conv1(images))))
        for index, stage in enumerate((network.layer1, network.layer2, network.layer3, network.layer4)):
            maps = stage(maps)
            if tape is not None:
                maps = tape.record(f"stages.{index}.output", maps)
        pooled = network.avgpool(maps).flatten(1)  # (B, C)
        if tape is not None:
            pooled = tape.record("pooled", pooled)
        logits = network.fc(pooled)  # (B, K)
        return logits if tape is None else tape.record("logits", logits)

    def tape_names(self) -> list[str]:
        return [*self.map_names(), "pooled", "logits"]

    def map_names(self) -> list[str]:
        return [f"stages.{index}.output" for index in range(4)]
