"""Ablation: switch off one head, or a block's attention, MLP or both, and see what the model loses; then heads one after another.

A patch is off when its pixels have the mean colour, as in occlusion. Where patches overlap, its neighbours lose these pixels too.
K classes, n points of the line, B images to judge by.
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
from vitral.draw.matrices import ablation_figure
from vitral.draw.result import Result
from vitral.look.choice import Start, check_item, find_target, need_transformer, start_row, unused_note
from vitral.look.maps import patch_edges
from vitral.look.occlusion import grid_of
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
    down, across = patch_edges(image.shape[1], rows), patch_edges(image.shape[2], columns)
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


# ---- many heads, one after another -------------------------------------------------------------------------------------------

_POINTS = 19
"""Most points of the line: for ViT-Ti every second head."""
DRAWS = 3
"""Random orders beside the one by importance: a line that falls as theirs does says nothing of the order."""
BATCH = 16


@dataclass(frozen=True)
class Pruning:
    """What is left of the answer when heads are switched off, the least important first."""

    order: tuple[tuple[int, int], ...]
    """(block, head), the first to go first."""
    counts: np.ndarray
    """(n,): how many are off, from none to all."""
    confidence: np.ndarray
    """(n,): the target's probability on the picture."""
    random: np.ndarray
    """(n,): the same in random order, the mean of some draws."""
    share: np.ndarray | None
    """(n,): of the images to judge by, how many get their label; None without such images."""

    @property
    def half(self) -> int:
        """So many heads can go before the target loses half its probability."""
        low = np.flatnonzero(self.confidence < self.confidence[0] / 2)
        return int(self.counts[low[0] - 1]) if len(low) else int(self.counts[-1])


def prune_heads(
    tape: Tape,
    ablation: Ablation,
    item: int = 0,
    *,
    images: torch.Tensor | None = None,
    labels: Sequence[int] = (),
    points: int = _POINTS,
) -> Pruning:
    """Switch heads off in the order of an `ablate` of the same picture; `images` (B, C, H, W) with `labels` are judged along the way.

    Images without labels are judged by the whole model's own answers.
    """
    item = check_item(tape, item)
    image = single_image(tape, item)
    if images is not None and not labels:
        with torch.no_grad():
            labels = torch.cat([run(tape, part.to(image)).argmax(dim=1) for part in images.split(BATCH)]).tolist()
    order = _least_first(ablation.heads)
    counts = np.unique(np.linspace(0, len(order), min(points, len(order) + 1)).round().astype(int))
    rng = np.random.default_rng(0)
    drawn = [[order[index] for index in rng.permutation(len(order))] for _ in range(DRAWS)]
    confidence, random, share = [], [], []
    truth = torch.tensor(list(labels))
    for count in track(counts.tolist(), "Removing heads, the least important first"):
        copies = [Off(heads=tuple(each[:count])) for each in (order, *drawn)]
        with torch.no_grad():
            scores = score(tape, run(tape, image[None].expand(len(copies), -1, -1, -1), edits_for(copies)), ablation.target)
            if images is not None:
                edits = edits_for(copies[0])
                answers = torch.cat([run(tape, part.to(image), edits).argmax(dim=1).cpu() for part in images.split(BATCH)])
                share.append(float((answers == truth).float().mean()))
        confidence.append(float(scores[0]))
        random.append(float(to_double(scores[1:]).mean()))
    judged = None if images is None else np.array(share)
    return Pruning(tuple(order), counts, np.array(confidence), np.array(random), judged)


def _least_first(heads: np.ndarray) -> list[tuple[int, int]]:
    """(block, head) by what the answer loses without it, the smallest loss first; `heads`: (L, heads), the change of the probability."""
    order = np.argsort(-heads, axis=None, kind="stable")
    return [(int(index) // heads.shape[1], int(index) % heads.shape[1]) for index in order]
