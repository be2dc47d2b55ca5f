"""Is a model well inside? Token norms through the depth, and artefact tokens: patches that a model uses as scratch space.

Such patches lie on empty background and have a norm far above the others (Darcet and others, "Vision Transformers Need
Registers", 2024). Found here without a fixed threshold: a norm that stands out from the patches' median by many
median absolute deviations, and is also clearly larger than it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vitral.base.numbers import to_double, to_numpy
from vitral.base.text import counted
from vitral.draw.curves import Line, line_chart
from vitral.draw.heatmap import Heatmap
from vitral.draw.result import Result
from vitral.look.choice import Start, check_index, check_item, need_transformer, unused_note
from vitral.look.maps import heat
from vitral.look.rerun import ensure_recorded
from vitral.model.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_OUTLYING = 8.0
"""Deviations (scaled to a normal distribution) above the median."""
LARGER = 1.5
"""Times the median."""


@dataclass(frozen=True)
class Health(Result):
    """Norms of one picture's tokens after every block."""

    patches: np.ndarray
    """(L, h, w)"""
    prefix: np.ndarray
    """(L, prefix)"""
    thresholds: np.ndarray
    """(L,): patches above are artefacts."""
    first: str = "class token"
    """What the first token before the patches is."""
    note: str = ""

    @property
    def artefacts(self) -> list[tuple[int, int, int]]:
        """(block, row, column) of every artefact token."""
        outliers = np.argwhere(self.patches > self.thresholds[:, None, None])
        return [(int(block), int(row), int(column)) for block, row, column in outliers]

    @property
    def finding(self) -> str:
        last = [artefact for artefact in self.artefacts if artefact[0] == len(self.patches) - 1]
        any_block = len({artefact[0] for artefact in self.artefacts})
        if not self.artefacts:
            return "no artefact tokens: no patch's norm stands out in any block"
        after = counted(len(last), "artefact token") if last else "no artefact tokens"
        return f"{after} after the last block; there are some in {any_block} of {len(self.patches)} blocks"

    def numbers(self) -> dict[str, Any]:
        artefacts = np.array(self.artefacts, dtype=np.int64).reshape(-1, 3)
        return {"patches": self.patches, "prefix": self.prefix, "thresholds": self.thresholds, "artefacts": artefacts}

    def draw(self) -> Figure:
        blocks, flat = np.arange(len(self.patches)), self.patches.reshape(len(self.patches), -1)
        low, high = np.percentile(flat, 5, axis=1), np.percentile(flat, 95, axis=1)
        lines = [Line(blocks, np.median(flat, axis=1), "patches: median, 5 to 95 %", low, high)]
        lines.append(Line(blocks, flat.max(axis=1), "largest patch", dashed=True))
        lines += [Line(blocks, self.prefix[:, 0], self.first)] if self.prefix.shape[1] else []
        wide = flat.max() > 10 * flat.min()
        title = self.finding[0].upper() + self.finding[1:]
        figure = line_chart(lines, x="block", y="norm of the token", log_y=bool(wide), title=title)
        figure.get_axes()[0].set_xticks(blocks[:: 1 if len(blocks) <= 16 else 2])
        return figure


def health(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class") -> Health:
    """Norms after every block and the artefact tokens among them."""
    need_transformer(tape, "the norm of tokens")
    names = tape.model.map_names()
    used, at = ensure_recorded(tape, item, names)
    norms = np.stack([to_numpy(to_double(used[name][at]).norm(dim=-1)) for name in names])  # (L, T)
    patches = norms[:, used.prefix :]
    return Health(
        patches.reshape(-1, *used.grid),
        norms[:, : used.prefix],
        outlier_threshold(patches),
        "class token" if used.config.class_token else "first register",
        unused_note("health", target=target, start=start),
    )


def norms(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, block: int = -1) -> Heatmap:
    """The norm of each patch's token after a block."""
    need_transformer(tape, "the norm of tokens")
    block = check_index("block", block, tape.config.depth)
    used, at = ensure_recorded(tape, item, [tape.model.map_names()[block]])
    values = to_numpy(to_double(used[used.model.map_names()[block]][at]).norm(dim=-1))[used.prefix :]
    outliers = int((values > outlier_threshold(values[None])[0]).sum())
    note = counted(outliers, "artefact token") if outliers else "no artefact tokens"
    grid, ignored = values.reshape(used.grid), unused_note("norms", target=target, start=start)
    return heat(used, check_item(tape, item), grid, "norms", note, ignored, at=at, block=block, unit="norm of the token")


def outlier_threshold(norms: np.ndarray) -> np.ndarray:
    """The norm above which a patch is an artefact, per row of (L, N)."""
    middle = np.median(norms, axis=1)
    spread = 1.4826 * np.median(np.abs(norms - middle[:, None]), axis=1)
    return np.maximum(middle + _OUTLYING * spread, LARGER * middle)
