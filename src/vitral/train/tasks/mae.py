"""MAE (He et al. 2021, arXiv 2111.06377): most patches are hidden, the encoder sees the rest, and a small decoder rebuilds the hidden ones.

The encoder is the model; what it learns is what the rest of a picture says about the hidden part. Targets are pixels, each patch with its
own mean and spread taken out unless it is too small for that. B pictures, N patches of which M are hidden, P numbers of a patch.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from vitral.base.errors import ConfigError
from vitral.base.numbers import to_numpy
from vitral.config import PretrainConfig
from vitral.model.block import TransformerBlock
from vitral.model.classifier import Classifier, evaluating
from vitral.model.patches import cut
from vitral.model.positions import sine_cosine
from vitral.model.vit import ViT, keep_tokens
from vitral.train.tasks.unlabelled import Unlabelled

if TYPE_CHECKING:
    from vitral.train.steps import Stepper

EPSILON = 1e-6


class MAE(Unlabelled):
    positions: Tensor

    def __init__(self, config: PretrainConfig, model: Classifier) -> None:
        super().__init__()
        own = model.config
        if not isinstance(model, ViT) or own.family != "vit" or model.pool is not None:
            raise ConfigError("mae needs a plain ViT without attention pooling", "choose another model, or --method lejepa")
        if own.is_relative:
            raise ConfigError("relative positions are of whole grids, and mae hides patches", "choose other positions, or --method lejepa")
        self.grid, self.prefix, self.cell, self.channels = own.grid, own.prefix, own.patch_stride, own.channels
        self.normed = config.normalised_pixels
        if self.normed and self.cell[0] * self.cell[1] * self.channels == 1:
            raise ConfigError("a patch of one number has no spread", "use --set normalised_pixels=false")
        # Where patches overlap, one that is shown reaches into its hidden neighbours: there it sees nothing (`_without_hidden`), and whole
        # squares of patches are hidden together, so that most of what is shown has no hole.
        self.overlap = own.patch_size != own.patch_stride
        self.square = tuple(max(1, size // step) for size, step in zip(own.patch_size, own.patch_stride, strict=True))
        if any(side % part for side, part in zip(own.grid, self.square, strict=True)):
            self.square = (1, 1)
        squares = self.grid[0] // self.square[0] * (self.grid[1] // self.square[1])
        if squares == 1:
            raise ConfigError(
                "mae hides some patches and shows others, here the whole picture is one", "use smaller patches (--patch-size)"
            )
        self.shown = min(max(1, round((1 - config.hidden) * squares)), squares - 1)  # without hidden ones there is no loss
        width = config.decoder_width // 4 * 4
        self.enter = nn.Linear(own.width, width)
        self.unknown = nn.Parameter(torch.randn(width) * 0.02)
        self.register_buffer("positions", sine_cosine(self.grid, width), persistent=False)
        plain = {
            "positions": "sincos",
            "drop_path": 0.0,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        }  # a picture of it is made while it learns
        small = dataclasses.replace(own, width=width, depth=config.decoder_depth, heads=max(1, width // 32), mlp_width=4 * width, **plain)
        self.blocks = nn.ModuleList(TransformerBlock(small, index) for index in range(small.depth))
        self.norm = nn.LayerNorm(width)
        self.leave = nn.Linear(width, own.channels * self.cell[0] * self.cell[1])

    def loss(self, model: Classifier, images: Tensor, keep: float | None) -> Tensor:  # noqa: ARG002 (it hides patches itself)
        images = images.flatten(0, 1)  # every view is a picture of its own
        order = self.draw(len(images), images.device)
        rebuilt = self.rebuild(model, images, order)  # (B, N, P)
        target, _, _ = self.pixels(images)
        hidden = 1 - self._shown(order, target)
        return ((rebuilt.float() - target).square().mean(-1, keepdim=True) * hidden).sum() / hidden.sum()

    def draw(self, batch: int, device: torch.device) -> Tensor:
        """Numbers of the patches that are shown, in order: as many in each picture, others in each."""
        rows, columns = self.grid[0] // self.square[0], self.grid[1] // self.square[1]
        chosen = torch.rand(batch, rows * columns, device=device).argsort(1)[:, : self.shown]  # squares
        corner = chosen // columns * (self.square[0] * self.grid[1]) + chosen % columns * self.square[1]
        inside = torch.arange(self.square[0], device=device)[:, None] * self.grid[1] + torch.arange(self.square[1], device=device)
        return (corner[:, :, None] + inside.flatten()).flatten(1).sort(1).values

    def rebuild(self, model: Classifier, images: Tensor, order: Tensor) -> Tensor:
        """All patches (B, N, P), from those that `order` shows."""
        assert isinstance(model, ViT)
        visible = self._without_hidden(images, order) if self.overlap else images
        tokens = model.through_blocks(*keep_tokens(*model.embed(visible), self.prefix, order))
        seen = self.enter(model.norm(tokens))
        prefix, seen = seen[:, : self.prefix], seen[:, self.prefix :]
        unknown = self.unknown.to(seen.dtype).expand(len(images), self.grid[0] * self.grid[1], -1)
        every = unknown.scatter(1, order[:, :, None].expand_as(seen), seen) + self.positions.to(seen.dtype)
        tokens = torch.cat([prefix, every], 1)
        for block in self.blocks:
            tokens = block(tokens)
        return self.leave(self.norm(tokens[:, self.prefix :]))

    def _without_hidden(self, images: Tensor, order: Tensor) -> Tensor:
        pixels = cut(images, self.cell)  # (B, N, P)
        return self._whole(pixels * self._shown(order, pixels))

    def _shown(self, order: Tensor, patches: Tensor) -> Tensor:
        """1 for each patch that is shown, 0 for each that is hidden: (B, N, 1)."""
        return patches.new_zeros(patches.shape[:2]).scatter_(1, order, 1.0)[:, :, None]

    def pixels(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pixels of each patch's own cell, with mean 0 and spread 1 where asked for, and what was taken out."""
        pixels = cut(images.float(), self.cell)  # (B, N, P)
        if not self.normed:
            return pixels, pixels.new_zeros(()), pixels.new_ones(())
        mean, spread = pixels.mean(-1, keepdim=True), (pixels.var(-1, keepdim=True) + EPSILON).sqrt()
        return (pixels - mean) / spread, mean, spread

    @torch.no_grad()
    def finish(self, stepper: Stepper, count: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is shown of some held-out images (hidden patches NaN), what is made of it, the images: (B, H, W, C) in [0, 1]."""
        images = next(iter(self.held.epoch(0))).images[:count, 0]
        with evaluating(stepper.model), stepper.inside():
            shown, made = self.pictures(stepper.model, images)
        mean, std = (torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (self.preprocess.mean, self.preprocess.std))
        shown, made, whole = (part * std + mean for part in (shown, made, images))
        first, second, third = (to_numpy(part.float().permute(0, 2, 3, 1)) for part in (shown, made, whole))
        return first, second, third

    def pictures(self, model: Classifier, images: Tensor) -> tuple[Tensor, Tensor]:
        """What is shown (hidden patches NaN) and what is made of it, both (B, C, H, W)."""
        order = self.draw(len(images), images.device)
        target, mean, spread = self.pixels(images)
        shown = self._shown(order, target)
        pixels = target * spread + mean
        rebuilt = shown * pixels + (1 - shown) * (self.rebuild(model, images, order).float() * spread + mean)
        return self._whole(pixels.masked_fill(shown == 0, float("nan"))), self._whole(rebuilt)

    def _whole(self, patches: Tensor) -> Tensor:
        """(B, N, P) → (B, C, H, W), the way back of `cut`."""
        parts = patches.unflatten(2, (self.channels, *self.cell)).unflatten(1, self.grid)  # (B, h, w, C, p, q)
        return parts.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)

    def embed(self, model: Classifier, images: Tensor) -> Tensor:
        return model(images)

    def parts(self) -> list[nn.Module]:
        return list(self.blocks)
