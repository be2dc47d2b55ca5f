"""Ablation: switch off one head, or a block's attention, MLP or both, and see what the model loses."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vitral.base.numbers import to_double, to_numpy
from vitral.base.progress import track
from vitral.base.text import html, signed, table
from vitral.draw.matrices import ablation_figure
from vitral.draw.result import Result
from vitral.look.choice import Start, check_item, find_target, need_transformer, unused_note
from vitral.look.rerun import run, score, score_unit, single_image
from vitral.model.tape import Edit, Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = ("attention", "MLP", "both")


@dataclass(frozen=True)
class Off:
    """What one copy of a picture goes without."""

    heads: tuple[tuple[int, int], ...] = ()
    """(block, head)"""
    attention: tuple[int, ...] = ()
    """Blocks whose attention adds nothing."""
    mlp: tuple[int, ...] = ()
    """Blocks whose MLP adds nothing."""


@dataclass(frozen=True, repr=False)
class Ablation(Result):
    """Change of the target's probability when a part is switched off: below zero, the model needed it."""

    heads: np.ndarray
    """(L, heads)"""
    parts: np.ndarray
    """(L, 3): the block's attention, its MLP, both."""
    whole: float
    """The probability with everything on."""
    target: int
    name: str
    unit: str
    note: str = ""

    def numbers(self) -> dict[str, Any]:
        return {"heads": self.heads, "parts": self.parts, "whole": self.whole}

    def __repr__(self) -> str:
        depth, count = self.heads.shape
        return f"Ablation({self.name}: {self.unit} {self.whole:.3f} with everything on; {depth} blocks, {count} heads)"

    def _repr_html_(self) -> str:
        """In a notebook: the figure, then its numbers as a table."""
        lines = [[str(block), *map(signed, row)] for block, row in enumerate(np.hstack([self.heads, self.parts]).tolist())]
        header = ["block", *(f"head {head}" for head in range(self.heads.shape[1])), *PARTS]
        picture = base64.b64encode(self._repr_png_()).decode()
        return f'<img src="data:image/png;base64,{picture}" alt="{escape(repr(self))}">' + html(f"{self!r}\n{table(lines, header, 'r')}")

    def draw(self) -> Figure:
        title = f"{self.name}: {self.unit} {self.whole:.3f} with everything on"
        return ablation_figure(self.heads, self.parts, PARTS, title, f"change of the {self.unit}")


def ablate(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class") -> Ablation:
    """Every head and every part of every block in turn, for one picture; one pass per block."""
    need_transformer(tape, "ablation")
    item = check_item(tape, item)
    target = find_target(tape, item, target)
    depth, count = tape.config.depth, tape.config.heads
    heads, parts = np.zeros((depth, count)), np.zeros((depth, len(PARTS)))
    image = single_image(tape, item)
    whole = float(_scores(tape, image, target, [Off()])[0])
    for block in track(range(depth), "Switching off heads and blocks"):
        copies = [Off(heads=((block, head),)) for head in range(count)]
        copies += [Off(attention=(block,)), Off(mlp=(block,)), Off(attention=(block,), mlp=(block,))]
        scores = _scores(tape, image, target, copies)
        heads[block], parts[block] = scores[:count] - whole, scores[count:] - whole
    return Ablation(heads, parts, whole, target, tape.origin.class_name(target), score_unit(tape), unused_note("ablate", start=start))


def edits_for(copies: Sequence[Off] | Off) -> dict[str, Edit]:
    """Edits for a batch of copies of one picture, of which copy i lacks what copies[i] says; one Off: for a batch of any size, all alike.

    A head is off when its attention weights are zero: then it gives nothing, just as if its output were cleared, and every map that is
    made of weights knows it too. With the output cleared alone, rollout would go on counting a head that no longer does anything.
    """
    entries: dict[str, list[tuple[int | slice, int | slice]]] = defaultdict(list)
    for copy, off in [(slice(None), copies)] if isinstance(copies, Off) else enumerate(copies):
        for block, head in [*off.heads, *((block, slice(None)) for block in off.attention)]:
            entries[f"blocks.{block}.attention.weights"].append((copy, head))
        for part in ("attention", "mlp"):  # the output too: it has a bias
            for block in getattr(off, part):
                entries[f"blocks.{block}.{part}.output"].append((copy, slice(None)))
    return {name: _zero(where) for name, where in entries.items()}


def _zero(entries: list[tuple[int | slice, int | slice]]) -> Edit:
    def edit(value: torch.Tensor, _: str) -> torch.Tensor:
        value = value.clone()
        for entry in entries:
            value[entry] = 0
        return value

    return edit


def _scores(tape: Tape, image: torch.Tensor, target: int, copies: Sequence[Off]) -> np.ndarray:
    images = image[None].expand(len(copies), -1, -1, -1)
    with torch.no_grad():
        return to_numpy(to_double(score(tape, run(tape, images, edits_for(copies)), target)))
