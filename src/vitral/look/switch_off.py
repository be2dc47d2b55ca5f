"""Ablation: switch off one head, or a block's attention, MLP or both, and see what the model loses.

A patch is off when its pixels have the mean colour, as in occlusion. Where patches overlap, its neighbours lose these pixels too.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vitral.base.errors import UsageError, out_of_range
from vitral.base.numbers import to_double, to_numpy
from vitral.base.progress import track
from vitral.base.text import html, signed, table
from vitral.draw.palette import NotebookFigure
from vitral.draw.switch_off import ablation_figure
from vitral.look.choice import Start, check_item, find_target, need_transformer, start_row, unused_note
from vitral.look.occlusion import edges, grid_of
from vitral.look.rerun import run, score, score_unit, single_image
from vitral.look.rollout import RunningRollout
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.model.tape import ATTENTION, Edit, Tape

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
    patches: tuple[int, ...] = ()
    """Patches that have the mean colour, row by row from 0."""


@dataclass(frozen=True, repr=False)
class Ablation(NotebookFigure):
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
    places: dict[str, list[tuple[int | slice, int | slice]]] = defaultdict(list)
    for copy, off in [(slice(None), copies)] if isinstance(copies, Off) else enumerate(copies):
        for block, head in [*off.heads, *((block, slice(None)) for block in off.attention)]:
            places[f"blocks.{block}.attention.weights"].append((copy, head))
        for part in ("attention", "mlp"):  # the output too: it has a bias
            for block in getattr(off, part):
                places[f"blocks.{block}.{part}.output"].append((copy, slice(None)))
    return {name: _zero(where) for name, where in places.items()}


def check_off(model: Classifier, off: Off) -> None:
    """Refuse parts that the model does not have."""
    config = model.config
    blocks = {*off.attention, *off.mlp}
    if not config.is_transformer and (off.heads or blocks):
        raise UsageError(f"a {config.family} has no heads or blocks to switch off", "switch off patches")
    for block, head in off.heads:
        if not (0 <= block < config.depth and 0 <= head < config.heads):
            raise UsageError(
                f"head {head} of block {block} does not exist", f"use blocks 0 to {config.depth - 1}, heads 0 to {config.heads - 1}"
            )
    for block in sorted(blocks):
        if not 0 <= block < config.depth:
            raise out_of_range("block", block, config.depth)
    rows, columns = grid_of(model)
    for patch in off.patches:
        if not 0 <= patch < rows * columns:
            raise out_of_range("patch", patch, rows * columns)


def without_patches(model: Classifier, image: torch.Tensor, patches: Sequence[int]) -> torch.Tensor:
    """A copy of the image (C, H, W) in which these patches have the mean colour."""
    rows, columns = grid_of(model)
    down, across = edges(image.shape[1], rows), edges(image.shape[2], columns)
    image = image.clone()
    for patch in patches:
        row, column = divmod(patch, columns)
        image[:, down[row] : down[row + 1], across[column] : across[column + 1]] = 0
    return image


def rollout_without(model: Classifier, image: torch.Tensor, copies: Sequence[Off]) -> tuple[np.ndarray, np.ndarray]:
    """Logits (copies, K) and rollouts (copies, h, w) of one image (C, H, W), each copy without its parts, in one pass."""
    for off in copies:
        check_off(model, off)
    images = torch.stack([without_patches(model, image, off.patches) for off in copies])
    running = RunningRollout()
    tape = watch(model, images, keep=["logits"], edits=edits_for(copies), readers={ATTENTION: running})
    assert running.product is not None
    row, _ = start_row(tape, running.product, "class")  # (copies, T)
    return to_numpy(to_double(tape.logits)), to_numpy(to_double(row[:, tape.prefix :])).reshape(-1, *tape.grid)


def _zero(places: list[tuple[int | slice, int | slice]]) -> Edit:
    def edit(value: torch.Tensor, _: str) -> torch.Tensor:
        value = value.clone()
        for place in places:
            value[place] = 0
        return value

    return edit


def _scores(tape: Tape, image: torch.Tensor, target: int, copies: Sequence[Off]) -> np.ndarray:
    images = image[None].expand(len(copies), -1, -1, -1)
    with torch.no_grad():
        return to_numpy(to_double(score(tape, run(tape, images, edits_for(copies)), target)))
