"""How far heads look, and how widely: mean attention distance and entropy, per head and depth, over a set of pictures.

Distance: for each patch that asks, the distance in pixels to every patch, weighted by its attention to them; the mean over
all patches. Tokens before the patches have no place, so their columns are left out and the rest of each row is scaled to 1.
Entropy: of each whole row, in bits; log2(T) when a token looks everywhere alike, 0 when it looks at one place.
Each picture's numbers are kept (heads are few), its attention is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vitral.base.numbers import to_double, to_numpy
from vitral.base.progress import track
from vitral.config import ModelConfig
from vitral.draw.charts import head_scatter
from vitral.draw.result import Result
from vitral.look.choice import Start, check_item, need_transformer, unused_note
from vitral.look.rerun import ensure_recorded, weight_names
from vitral.look.watch import each, watch
from vitral.model.classifier import Classifier
from vitral.model.tape import ATTENTION, Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH = 16


@dataclass(frozen=True)
class HeadNumbers(Result):
    """One number per picture, block and head."""

    name: str
    unit: str
    each: np.ndarray
    """(pictures, L, heads)"""
    limits: tuple[float, float]
    """The least and the most that is possible."""
    reference: float
    """What attention spread evenly over the picture would give."""
    note: str = ""

    @property
    def values(self) -> np.ndarray:
        """(L, heads), the mean over the pictures."""
        return self.each.mean(axis=0)

    def numbers(self) -> dict[str, Any]:
        return {"each": self.each, "mean": self.values, "uniform": self.reference}

    def draw(self) -> Figure:
        count = len(self.each)
        title = f"{self.name.capitalize()} per head, {f'mean of {count} pictures' if count > 1 else 'one picture'}"
        label, even = f"{self.name} ({self.unit})", "attention spread evenly"
        return head_scatter(self.values, label=label, title=title, largest=self.reference, largest_label=even)


def distance(tape: Tape, item: int | None = None, target: int | str | None = None, start: Start = "class") -> HeadNumbers:
    """Mean attention distance in pixels of one picture, or of all on the tape."""
    return _from_tape(tape, item, "distance", unused_note("distance", target=target, start=start))


def entropy(tape: Tape, item: int | None = None, target: int | str | None = None, start: Start = "class") -> HeadNumbers:
    """Entropy of attention in bits, of one picture or of all on the tape."""
    return _from_tape(tape, item, "entropy", unused_note("entropy", target=target, start=start))


def watch_heads(model: Classifier, x: Any, batch: int = BATCH) -> dict[str, HeadNumbers]:
    """Distance and entropy over any number of pictures, a few at a time; no attention is stored."""
    need_transformer(model, "attention distance")
    items = each(x)
    series: dict[str, list[np.ndarray]] = {name: [] for name in MEASURES}
    config = model.config  # the reader must not know a compiled model: the compiler would follow it there
    for begin in track(range(0, len(items), batch), "Measuring heads"):
        passing: dict[str, list[np.ndarray]] = {name: [] for name in MEASURES}

        def read(weights: torch.Tensor, _: str, passing: dict[str, list[np.ndarray]] = passing) -> None:
            for name, measure in MEASURES.items():
                passing[name].append(measure(weights, config))

        watch(model, items[begin : begin + batch], keep=["logits"], readers={ATTENTION: read})
        for name in MEASURES:
            series[name].append(np.stack(passing[name], axis=1))  # (B, L, heads)
    return {name: _named(name, np.concatenate(parts), model.config) for name, parts in series.items()}


def _from_tape(tape: Tape, item: int | None, name: str, note: str) -> HeadNumbers:
    need_transformer(tape, f"attention {name}")
    names = weight_names(tape)
    items = range(tape.logits.shape[0]) if item is None else [check_item(tape, item)]
    each = []
    for index in items:
        used, at = ensure_recorded(tape, index, names)
        tape = used if tape.edits else tape  # then it holds the whole batch, which need not go again for the next picture
        each.append(np.stack([MEASURES[name](used[block][at : at + 1], tape.config)[0] for block in names]))
    return _named(name, np.stack(each), tape.config, note)


def distances(config: ModelConfig) -> np.ndarray:
    """(N, N): how far apart the centres of patches are, in pixels of the model's picture."""
    (rows, columns), (height, width) = config.grid, config.image_size
    down = np.repeat(np.arange(rows), columns) * (height / rows)
    across = np.tile(np.arange(columns), rows) * (width / columns)
    return np.hypot(down[:, None] - down, across[:, None] - across)


def mean_distance(weights: torch.Tensor, config: ModelConfig) -> np.ndarray:
    """(B, heads) from weights (B, heads, T, T)."""
    between = torch.from_numpy(distances(config))
    total = torch.zeros(weights.shape[:2], dtype=between.dtype)
    for head in range(weights.shape[1]):  # one head at a time: doubles of all heads at once would need much memory
        patches = to_double(weights[:, head, config.prefix :, config.prefix :])  # (B, N, N)
        weighted = (patches * between).sum(dim=-1) / patches.sum(dim=-1).clamp(min=1e-30)
        total[:, head] = weighted.mean(dim=-1)
    return to_numpy(total)


def _mean_entropy(weights: torch.Tensor, _: ModelConfig) -> np.ndarray:
    """(B, heads) from weights (B, heads, T, T)."""
    parts = [torch.special.entr(to_double(weights[:, head])).sum(dim=-1).mean(dim=-1) for head in range(weights.shape[1])]
    return to_numpy(torch.stack(parts, dim=1) / np.log(2))


def _named(name: str, each: np.ndarray, config: ModelConfig, note: str = "") -> HeadNumbers:
    if name == "entropy":
        most = float(np.log2(config.tokens))
        return HeadNumbers("attention entropy", "bits", each, (0.0, most), most, note)
    between = distances(config)
    return HeadNumbers("mean attention distance", "pixels", each, (0.0, float(between.max())), float(between.mean()), note)


MEASURES: dict[str, Callable[..., Any]] = {"distance": mean_distance, "entropy": _mean_entropy}
