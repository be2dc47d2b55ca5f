"""What a ViT and its rivals have in common: a config, an origin, a tape, features, a summary."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import torch
from torch import nn

from vitral.base.errors import UsageError, out_of_range
from vitral.base.origin import Origin, fact
from vitral.base.text import html
from vitral.config import ModelConfig
from vitral.model.summary import summary
from vitral.model.tape import Tape


class Classifier(nn.Module):
    """Images in, logits out; `forward(images, tape=None)` in every subclass."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        heads = config.heads if config.is_transformer else 0
        self.folder: Path | None = None
        """Where it was read from, if it was saved or trained here."""
        self.origin: Origin = Origin(activation=fact(config.activation), norm_epsilon=fact(config.norm_epsilon), heads=fact(heads))

    def tape_names(self) -> list[str]:
        """Every name that a tape of this model can keep, read or edit."""
        raise NotImplementedError

    def map_names(self) -> list[str]:
        """The names whose values are maps over the image, one per block or stage."""
        raise NotImplementedError

    def as_map(self, value: torch.Tensor) -> torch.Tensor:
        """A value of `map_names` as (B, D, h, w)."""
        return value

    def features(self, images: torch.Tensor, blocks: Sequence[int]) -> list[torch.Tensor]:
        """Patch tokens (or feature maps) after the given blocks, as maps of (B, D, h, w)."""
        names = self.map_names()
        if isinstance(blocks, int):
            raise UsageError(f"blocks = {blocks}", f"give a list: blocks=[{blocks}]")
        if wrong := next((block for block in blocks if not -len(names) <= block < len(names)), None):
            raise out_of_range("block", wrong, len(names))
        chosen = [names[block] for block in blocks]
        tape = Tape(self, keep=chosen)
        self(images, tape=tape)
        return [self.as_map(tape[name]) for name in chosen]

    def pooled(self, images: torch.Tensor, blocks: int = 1) -> torch.Tensor:
        """The vector that the head reads, (B, D); of several `blocks`, the last ones, each read the same way, side by side."""
        if blocks != 1:
            raise UsageError(f"the features of {blocks} blocks are asked for, and {self.config.family} models have no blocks", "read one")
        tape = Tape(self, keep=["pooled"])
        self(images, tape=tape)
        return tape["pooled"]

    def summary(self) -> str:
        """A table of layers with parameters, input and output sizes, total and megabytes."""
        return summary(self, (self.config.channels, *self.config.image_size))

    def with_head(self, classes: int, seed: int = 0) -> Self:
        """A copy with the same body and an untrained head; 0 classes: no head, the pooled features come out."""
        model = copy.deepcopy(self)
        model.config = dataclasses.replace(self.config, classes=classes)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # a fresh head starts the same way each time
            model._make_head()
        changed = self.origin.with_change(f"head replaced: {self.config.classes} → {classes} classes", seed)
        model.origin = dataclasses.replace(changed, classes=fact((), "the head is new"), thresholds=())
        body = next(self.parameters())
        return model.to(body.device, body.dtype).train(self.training)

    def _make_head(self) -> None:
        """Put an untrained head for `config.classes` in place of the old one."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """What it is and where it comes from; `summary()` has the layers, `print(model.blocks)` PyTorch's tree."""
        config, kind = self.config, type(self).__name__
        height, width = config.image_size
        parts = [f"{height}×{width}×{config.channels} → {f'{config.classes} classes' if config.classes else 'features'}"]
        if config.is_transformer:
            patch = "×".join(map(str, config.patch_size))
            parts += [f"patch {patch}", f"width {config.width}", f"{config.depth} blocks", f"{config.heads} heads"]
        parts.append(f"{sum(parameter.numel() for parameter in self.parameters()):,} parameters")
        history = "; ".join([self.origin.source.value, *self.origin.changes])
        return f"{kind if kind.lower() == config.family else config.family}({', '.join(parts)})\n  {history}"

    def _repr_html_(self) -> str:
        return html(f"{self!r}\n{self.summary()}")

    def check_images(self, images: torch.Tensor) -> None:
        expected = (self.config.channels, *self.config.image_size)
        if not isinstance(images, torch.Tensor):
            raise UsageError(
                f"a model called takes a tensor of images, not {type(images).__name__}",
                "vitral.predict and vitral.watch take files, PIL images and arrays; vitral.transform(model) makes tensors of them",
            )
        if not images.is_floating_point():
            raise UsageError(f"the images are of {_kind(images.dtype)}", "normalise them as vitral.transform(model) does")
        own = next(self.parameters(), images).dtype
        if images.dtype != own and (images.dtype == torch.float64 or not torch.is_autocast_enabled(images.device.type)):
            raise UsageError(f"the images are of {_kind(images.dtype)}, the model of {_kind(own)}", f"use images.to({own})")
        if images.ndim != 4 or tuple(images.shape[1:]) != expected:
            raise UsageError(
                f"this model takes images of (batch, {', '.join(map(str, expected))}), got {tuple(images.shape)}",
                "let vitral.open_picture prepare them, or load the model with image_size= and channels=",
            )


def _kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Everything in eval mode inside the block; after it each module as it was, also those that were in eval mode alone."""
    training = [module for module in _modules(model) if module.training]
    if training:
        model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _modules(model: nn.Module) -> list[nn.Module]:
    """Like `model.modules()` without names, and quicker: a GPU waits for it before every watched pass."""
    modules = [model]
    for module in modules:
        modules += [child for child in module._modules.values() if child is not None]
    return modules
