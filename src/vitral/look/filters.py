"""What the first layer looks for: principal components of a ViT's patch embedding, a CNN's first filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from vitral.base.errors import UsageError
from vitral.base.numbers import to_double, to_numpy
from vitral.base.text import percent
from vitral.draw.result import Result
from vitral.draw.tiles import filter_tiles
from vitral.look.choice import Start, model_of, unused_note
from vitral.look.similarity import principal
from vitral.model.classifier import Classifier
from vitral.model.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Filters(Result):
    """Small pictures of what a first layer answers to."""

    tiles: np.ndarray
    """(n, ph, pw, C), as they are: unscaled, signed."""
    explained: np.ndarray | None
    """(n,): share of the variance of all filters that each component holds; None where the tiles are the filters themselves."""
    title: str
    note: str = ""

    @property
    def shown(self) -> np.ndarray:
        """(n, ph, pw) or (n, ph, pw, 3): one channel in grey, three in colour, of more the first three, of two their mean."""
        channels = self.tiles.shape[-1]
        return self.tiles[..., :3] if channels >= 3 else self.tiles.mean(axis=-1)

    @property
    def captions(self) -> list[str]:
        return [] if self.explained is None else [percent(share) for share in self.explained]

    def numbers(self) -> dict[str, Any]:
        return {"tiles": self.tiles, **({} if self.explained is None else {"explained": self.explained})}

    def draw(self) -> Figure:
        return filter_tiles(self.shown, captions=self.captions, title=self.title)


def filters(
    model: Classifier | Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, count: int = 28
) -> Filters:
    """What the first layer of a model (or of a tape's model) looks for; nothing depends on a picture."""
    model, note = model_of(model), unused_note("filters", item=item, target=target, start=start)
    if count < 1:
        raise UsageError(f"count = {count}", "ask for at least one filter")
    if model.config.family == "vit":
        weight = to_numpy(to_double(model.patches.projection.weight))  # type: ignore[union-attr]  (D, C, ph, pw)
        _, components, explained = principal(weight.reshape(len(weight), -1), count)
        tiles = components.reshape(-1, *weight.shape[1:]).transpose(0, 2, 3, 1)
        return Filters(tiles, explained, f"Patch embedding: first {len(tiles)} principal components", note)
    first = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    weight = to_numpy(to_double(first.weight))  # (filters, C, ph, pw)
    strongest = np.argsort(-np.linalg.norm(weight.reshape(len(weight), -1), axis=1), kind="stable")[:count]
    family = model.config.family
    name = {"cnn": "CNN", "hybrid": "Stem of the hybrid"}.get(family, family.replace("resnet", "ResNet-"))
    title = f"{name}: the {len(strongest)} strongest of {len(weight)} first filters"
    return Filters(weight[strongest].transpose(0, 2, 3, 1), None, title, note)
