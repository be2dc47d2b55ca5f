"""What resembles what: positions with positions, patches with patches, and tokens as colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.numbers import to_double, to_numpy
from vitral.base.picture import Picture
from vitral.base.text import counted, percent
from vitral.draw.curves import Line, line_chart
from vitral.draw.heatmap import Heatmap
from vitral.draw.matrices import grid_of_grids
from vitral.draw.result import Result
from vitral.draw.style import squares
from vitral.draw.tiles import picture_sheet
from vitral.look.choice import Start, check_index, check_item, check_patch, model_of, need_tape, start_index, start_patch, unused_note
from vitral.look.describe import seen
from vitral.look.health import outlier_threshold
from vitral.look.maps import heat
from vitral.look.rerun import ensure_recorded
from vitral.model.classifier import Classifier
from vitral.model.positions import positioned_prefix
from vitral.model.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure
POSITIONED = ("learned", "sincos", "learned+rotary", "learned+relative")
"""Positions that are vectors, one a token."""


@dataclass(frozen=True)
class PositionSimilarity(Result):
    """Cosine similarity of each position's vector with all others."""

    values: np.ndarray
    """(h, w, h, w)"""
    class_token: np.ndarray | None
    """(h, w): the class token's position with the patches'; None where it has none."""
    same_row: float
    """Mean similarity of two positions in one row, over the distances that rows and columns share."""
    same_column: float
    elsewhere: float
    """Mean similarity of positions in different rows and columns."""
    by_distance: np.ndarray
    """(2, n): the mean similarity in one row and in one column, at 1 to n patches."""
    note: str = ""

    @property
    def finding(self) -> str:
        rows, columns = self.same_row, self.same_column
        if abs(rows - columns) < 0.005:
            return f"positions in one row are as alike as in one column ({rows:.3f}, {columns:.3f})"
        more = "more" if rows > columns else "less"
        return f"positions in one row are {more} alike ({rows:.3f}) than in one column ({columns:.3f}); elsewhere {self.elsewhere:.3f}"

    def numbers(self) -> dict[str, Any]:
        base = {"similarity": self.values, "same_row": self.same_row, "same_column": self.same_column, "elsewhere": self.elsewhere}
        return {**base, "by_distance": self.by_distance, **({} if self.class_token is None else {"class_token": self.class_token})}

    def draw(self) -> Figure:
        return grid_of_grids(self.values, title="Position embeddings: similarity of each with all others")

    def draw_distances(self) -> Figure:
        """Rows against columns."""
        away = np.arange(1, self.by_distance.shape[1] + 1)
        lines = [Line(away, values, label) for values, label in zip(self.by_distance, ("in one row", "in one column"), strict=True)]
        title = f"Similarity of positions: {self.same_row:.3f} in one row, {self.same_column:.3f} in one column".replace("-", "−")
        return line_chart(lines, x="distance in patches", y="mean cosine similarity", title=title)


def position_similarity(
    model: Classifier | Tape, item: int = 0, target: int | str | None = None, start: Start = "class"
) -> PositionSimilarity:
    """How much each position vector of a model (or of a tape's model) resembles every other; nothing depends on a picture."""
    model = model_of(model)
    config = model.config
    if not config.is_transformer or config.positions not in POSITIONED:
        kind = "no" if config.positions == "none" else config.positions
        has = f"{kind} positions" if config.is_transformer else "no tokens"
        raise UsageError(
            f"this {config.family} has {has}, so there are no position vectors to compare",
            "use a model with learned or sine/cosine positions",
        )
    table = to_numpy(to_double(model.positions.table[0]))  # type: ignore[union-attr,index]  (P + N, D)
    prefix = positioned_prefix(config)
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-30)
    cosine = unit[prefix:] @ unit[prefix:].T  # (N, N)
    rows, columns = config.grid
    values = cosine.reshape(rows, columns, rows, columns)
    own = config.class_token and prefix > 0 and config.has_table
    shared = min(rows, columns) - 1
    in_row = [float(np.mean([values[:, c, :, c + k].diagonal().mean() for c in range(columns - k)])) for k in range(1, shared + 1)]
    in_column = [float(np.mean([values[r, :, r + k, :].diagonal().mean() for r in range(rows - k)])) for k in range(1, shared + 1)]
    different = (np.arange(rows)[:, None, None, None] != np.arange(rows)[None, None, :, None]) & (
        np.arange(columns)[None, :, None, None] != np.arange(columns)[None, None, None, :]
    )
    return PositionSimilarity(
        values,
        (unit[prefix:] @ unit[0]).reshape(rows, columns) if own else None,
        float(np.mean(in_row)) if in_row else float("nan"),
        float(np.mean(in_column)) if in_column else float("nan"),
        float(values[different].mean()) if different.any() else float("nan"),
        np.array([in_row, in_column]),
        unused_note("position_similarity", item=item, target=target, start=start),
    )


def similarity(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, block: int = -1) -> Heatmap:
    """Cosine similarity of one token with every patch after a block: `start=(row, column)` asks what resembles that patch."""
    need_tape(tape)
    names = tape.model.map_names()
    block = check_index("block", block, len(names))
    name = names[block]
    used, at = ensure_recorded(tape, item, [name])
    patches = patch_tokens(used, name, at)  # (h, w, D)
    if tape.config.is_transformer:
        (index, note), patch = start_index(used, start), start_patch(used, start)
        own = patches.mean(axis=(0, 1)) if index is None else to_numpy(to_double(used[name][at, index]))
    elif isinstance(start, tuple | list):
        patch = check_patch("place", start, patches.shape[:2], "this map")
        own, note = patches[patch], f"starts from the place in row {patch[0]}, column {patch[1]}"
    else:
        own, patch, note = patches.mean(axis=(0, 1)), None, f"a {tape.config.family} has no class token: starts from the mean of the map"
    lengths = np.linalg.norm(patches, axis=2) * np.linalg.norm(own)
    grid = patches @ own / np.maximum(lengths, 1e-30)
    item, ignored = check_item(tape, item), unused_note("similarity", target=target)
    facts = {"block": block, "unit": "cosine similarity", "signed": True, "start": patch}
    return heat(used, item, grid, "similarity", note, ignored, at=at, **facts)


@dataclass(frozen=True)
class TokenColours(Result):
    """The first three principal components of the patches' tokens as red, green and blue."""

    colours: np.ndarray
    """(h, w, 3) in [0, 1]"""
    explained: np.ndarray
    """(3,): share of the variance that each component holds, artefact tokens left out."""
    block: int
    artefacts: int = 0
    """Tokens whose norm stands out: left out of the components, for they would fill them all; drawn in mid-grey."""
    picture: Picture | None = None
    note: str = ""

    @property
    def caption(self) -> str:
        grey = f", {counted(self.artefacts, 'artefact')} in grey" if self.artefacts else ""
        return f"block {self.block}: {percent(self.explained.sum())} of variance{grey}"

    def numbers(self) -> dict[str, Any]:
        return {"colours": self.colours, "explained": self.explained}

    def image(self, size: int = 256) -> Image.Image:
        return Image.fromarray(squares((self.colours * 255).round().astype(np.uint8), size))

    def draw(self) -> Figure:
        images = [self.image()] if self.picture is None else [seen(self.picture), self.image()]
        captions = ["picture", self.caption][-len(images) :]
        return picture_sheet(images, captions, columns=2, title="Tokens as colours", width=2.4)


def token_colours(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, block: int = -1) -> TokenColours:
    """Patches of like colour have like tokens."""
    need_tape(tape)
    names = tape.model.map_names()
    block = check_index("block", block, len(names))
    picture = tape.pictures[check_item(tape, item)] if tape.pictures else None
    used, at = ensure_recorded(tape, item, [names[block]])
    patches = patch_tokens(used, names[block], at)  # (h, w, D)
    rows = patches.reshape(-1, patches.shape[-1])
    lengths = np.linalg.norm(rows, axis=1)
    usual = lengths <= outlier_threshold(lengths[None])[0]
    scores, _, explained = principal(rows[usual], 3)
    colours = np.full((len(rows), 3), 0.5)
    colours[usual] = as_colours(scores)
    grid, note = colours.reshape(*patches.shape[:2], 3), unused_note("token_colours", target=target, start=start)
    return TokenColours(grid, explained, block, int((~usual).sum()), picture, note)


def principal(rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """PCA of (n, features): scores (n, count), components (count, features), explained variance as shares.

    A component's sign means nothing; it is fixed so that its largest entry is positive, hence every run draws the same.
    """
    centred = rows - rows.mean(axis=0)
    _, sizes, components = np.linalg.svd(centred, full_matrices=False)
    components = components[:count]
    flip = np.sign(components[np.arange(len(components)), np.abs(components).argmax(axis=1)])
    components = components * np.where(flip == 0, 1, flip)[:, None]
    explained = sizes**2 / max(float((sizes**2).sum()), 1e-30)
    return centred @ components.T, components, explained[:count]


def as_colours(scores: np.ndarray) -> np.ndarray:
    """Scores (n, up to 3) → red, green and blue in [0, 1], from the 1st to the 99th percentile; a missing component is mid-grey."""
    low, high = np.percentile(scores, 1, axis=0), np.percentile(scores, 99, axis=0)
    colours = np.clip((scores - low) / np.maximum(high - low, 1e-30), 0, 1)
    return np.pad(colours, ((0, 0), (0, 3 - colours.shape[1])), constant_values=0.5)


def patch_tokens(tape: Tape, name: str, item: int = 0) -> np.ndarray:
    """The patches' tokens (h, w, D) that a tape keeps under one of the model's `map_names()`; of a rival, its feature map."""
    maps = to_numpy(to_double(tape.model.as_map(tape[name])[item]))  # (D, h, w)
    return maps.transpose(1, 2, 0)
