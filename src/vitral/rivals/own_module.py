"""A module of one's own behind our interface, so that the one loop can train it: `vitral.fit(run, model=my_module)`."""

from __future__ import annotations

import torch
from torch import nn

from vitral.base.errors import UsageError
from vitral.config import ModelConfig
from vitral.model.classifier import Classifier, evaluating
from vitral.model.tape import Tape


class OwnModule(Classifier):
    """Images in, logits out; what it is made of is its own affair, so a config cannot build it anew."""

    def __init__(self, config: ModelConfig, module: nn.Module) -> None:
        super().__init__(config)
        self.module = module
        images = torch.zeros(2, config.channels, *config.image_size, device=next(module.parameters()).device)
        with evaluating(module), torch.no_grad():
            logits = module(images)
        if not isinstance(logits, torch.Tensor) or logits.shape != (2, config.classes):
            got = tuple(logits.shape) if isinstance(logits, torch.Tensor) else f"a {type(logits).__name__}"
            raise UsageError(
                f"{type(module).__name__} makes {got} of images {tuple(images.shape)}",
                f"its forward must return a tensor (2, {config.classes}) there: a logit for each class of the data",
            )

    def forward(self, images: torch.Tensor, tape: Tape | None = None) -> torch.Tensor:
        self.check_images(images)
        logits = self.module(images)  # (B, K)
        return logits if tape is None else tape.record("logits", logits)

    def tape_names(self) -> list[str]:
        return ["logits"]

    def map_names(self) -> list[str]:
        return []
