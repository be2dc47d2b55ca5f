"""Attention as it is: one token's row over the picture, and the whole matrix.

B pictures, T tokens, weights (B, heads, T, T): row = who asks, column = who is looked at, rows sum to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vitral.base.errors import UsageError
from vitral.base.numbers import to_double, to_numpy
from vitral.draw.heatmap import Heatmap
from vitral.draw.matrices import matrix_figure
from vitral.draw.result import Result
from vitral.look.choice import Start, check_index, check_item, need_transformer, start_index, start_patch, unused_note
from vitral.look.maps import heat, to_grid
from vitral.look.rerun import ensure_recorded
from vitral.model.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def attention(
    tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, block: int = -1, head: int | None = None
) -> Heatmap:
    """Where a token looks in one block: one head, or the mean of all. Attention alone knows no class: a `target` is noted, not used."""
    need_transformer(tape, "attention")
    item = check_item(tape, item)
    block = check_index("block", block, tape.config.depth)
    if head is not None:
        head = check_index("head", head, tape.config.heads)
    used, at, row = _row(tape, item, start, block, head)
    _, note = start_index(tape, start)
    return heat(
        used,
        item,
        to_grid(used, row),
        "attention",
        note,
        unused_note("attention", target=target),
        at=at,
        block=block,
        head="mean" if head is None else head,
        unit="share of attention",
        start=start_patch(tape, start),
    )


def _row(tape: Tape, item: int, start: Start, block: int, head: int | None) -> tuple[Tape, int, torch.Tensor]:
    """(T,) from a tape that may hold only some rows and heads; the picture is watched again where they are missing."""
    index, _ = start_index(tape, start)
    name = f"blocks.{block}.attention.weights"
    rows, heads = tape.recorded_rows, tape.recorded_heads
    enough = (
        name in tape and (rows is None or (index is not None and index in rows)) and (heads is None or (head is not None and head in heads))
    )
    used, at = (tape, item) if enough else ensure_recorded(tape, item, [name])
    weights = used[name][at]  # (heads, rows, T)
    weights = weights.mean(dim=0) if head is None else weights[head if used.recorded_heads is None else used.recorded_heads.index(head)]
    if index is None:
        return used, at, weights[used.prefix :].mean(dim=0)
    return used, at, weights[index if used.recorded_rows is None else used.recorded_rows.index(index)]


@dataclass(frozen=True)
class AttentionMatrix(Result):
    """All of one block's attention for one picture: (T, T) of one head or of the mean."""

    values: np.ndarray
    block: int
    head: int | str
    prefix: int
    normalised: bool = False
    """Each row with mean 0 and variance 1: faint structure shows."""
    note: str = ""

    @property
    def title(self) -> str:
        who = f"head {self.head}" if isinstance(self.head, int) else f"{self.head} of heads"
        return f"attention matrix, block {self.block}, {who}" + (", rows normalised" if self.normalised else "")

    def numbers(self) -> dict[str, Any]:
        return {"matrix": self.values}

    def draw(self) -> Figure:
        """Raw weights by their logarithm: most are a thousandth of the few largest, and would be one black square."""
        label = "deviations from the row's mean" if self.normalised else "attention (logarithmic)"
        options = {"prefix": self.prefix, "signed": self.normalised, "label": label, "log": not self.normalised}
        return matrix_figure(self.values, title=self.title, **options)


def attention_matrix(
    tape: Tape,
    item: int = 0,
    target: int | str | None = None,
    start: Start = "class",
    *,
    block: int = -1,
    head: int | None = None,
    normalised: bool = False,
) -> AttentionMatrix:
    """The whole (T, T) matrix of one block, of one head or of the mean."""
    need_transformer(tape, "the attention matrix")
    block = check_index("block", block, tape.config.depth)
    tape, item = ensure_recorded(tape, item, [f"blocks.{block}.attention.weights"])
    weights = to_double(tape.attention(block)[item])  # (heads, T, T)
    matrix = weights.mean(dim=0) if head is None else weights[check_index("head", head, tape.config.heads)]
    if normalised:
        matrix = _layer_normalised(matrix)
    who = "mean" if head is None else head % tape.config.heads
    note = unused_note("attention_matrix", target=target, start=start)
    return AttentionMatrix(to_numpy(matrix), block, who, tape.prefix, normalised, note)


def _layer_normalised(matrix: torch.Tensor, epsilon: float = 1e-12) -> torch.Tensor:
    """Layer norm of each row. Epsilon is far below LayerNorm's usual 1e-5, which would swamp weights near 1/T."""
    if matrix.shape[-1] < 2:
        raise UsageError("a matrix of one token cannot be normalised", "use a picture with more patches")
    return torch.nn.functional.layer_norm(matrix, matrix.shape[-1:], eps=epsilon)
