"""What a ViT and its rivals have in common: a config, an origin, a tape, features, a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from vitral.base.errors import UsageError, out_of_range
from vitral.base.origin import Origin, known
from vitral.config import ModelConfig
from vitral.model.tape import Tape


class Classifier(nn.Module):
    """Pictures in, logits out; `forward(images, tape=None)` in every subclass."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        heads = config.heads if config.family in ("vit", "hybrid") else 0
        self.origin = Origin(activation=known(config.activation), norm_epsilon=known(config.norm_epsilon), heads=known(heads))

    def tape_names(self) -> list[str]:
        """Every name that a tape of this model can keep, read or edit."""
        raise NotImplementedError

    def map_names(self) -> list[str]:
        """The names whose values are maps over the picture, one per block or stage."""
        raise NotImplementedError

    def as_map(self, value: torch.Tensor) -> torch.Tensor:
        """A value of `map_names` as (B, D, h, w)."""
        return value

    def features(self, images: torch.Tensor, blocks: Sequence[int]) -> list[torch.Tensor]:
        """Patch tokens (or feature maps) after the given blocks, as maps of (B, D, h, w)."""
        names = self.map_names()
        if wrong := next((block for block in blocks if not -len(names) <= block < len(names)), None):
            raise out_of_range("block", wrong, len(names))
        chosen = [names[block] for block in blocks]
        tape = Tape(self, keep=chosen)
        self(images, tape=tape)
        return [self.as_map(tape[name]) for name in chosen]

    def pooled(self, images: torch.Tensor) -> torch.Tensor:
        """The vector that the head reads, (B, D)."""
        tape = Tape(self, keep=["pooled"])
        self(images, tape=tape)
        return tape["pooled"]

    def summary(self) -> str:
        """A table of layers with parameters, input and output sizes, total and megabytes."""
        from vitral.model.summary import summary

        return summary(self)

    def check_images(self, images: torch.Tensor) -> None:
        wanted = (self.config.channels, *self.config.image_size)
        if images.ndim != 4 or tuple(images.shape[1:]) != wanted:
            raise UsageError(
                f"this model takes pictures of (batch, {', '.join(map(str, wanted))}), got {tuple(images.shape)}",
                "let vitral.open_picture prepare them, or load the model with image_size= and channels=",
            )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Everything in eval mode inside the block; after it each module as it was, also those that were in eval mode alone."""
    training = [module for module in model.modules() if module.training]
    if training:
        model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
