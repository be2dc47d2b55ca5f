"""Filters of two models, one under the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitral.draw.palette import INK, TICK_SIZE, TITLE_SIZE, dress_picture, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 7
CELL = 0.85


def filters_beside(groups: Sequence[tuple[np.ndarray, Sequence[str], str]]) -> Figure:
    """Each group: filters (n, h, w[, 3]), captions, a title. Zero is mid-grey, one scale per filter."""
    lines: list[tuple[str, list[tuple[np.ndarray, str]]]] = []
    for filters, captions, title in groups:
        reach = np.maximum(np.abs(filters).max(axis=tuple(range(1, filters.ndim)), keepdims=True), 1e-30)
        shown = list(zip(0.5 + 0.5 * filters / reach, [*captions, *[""] * (len(filters) - len(captions))], strict=True))
        lines += [(title if begin == 0 else "", shown[begin : begin + COLUMNS]) for begin in range(0, len(shown), COLUMNS)]
    heights = [CELL + 0.2 + (0.2 if title else 0) for title, _ in lines]
    figure, axes = new_figure(CELL * COLUMNS + 0.2, sum(heights), len(lines), COLUMNS, height_ratios=heights)
    for row, (title, shown) in zip(axes, lines, strict=True):
        for index, one in enumerate(row):
            if index >= len(shown):
                one.set_visible(False)
                continue
            tile, caption = shown[index]
            dress_picture(one).imshow(tile, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            one.set_xlabel(caption, fontsize=TICK_SIZE, color=INK, labelpad=2)
        if title:
            row[0].set_title(title[0].upper() + title[1:], fontsize=TITLE_SIZE, color=INK, loc="left")
    return figure
