"""Filters of two models, one under the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitral.draw.palette import INK, PAPER, TICK_SIZE, dress_picture, head_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 7
CELL = 0.85


def filters_beside(groups: Sequence[tuple[np.ndarray, Sequence[str], str]]) -> Figure:
    """Each group: filters (n, h, w[, 3]), captions, a title. Zero is mid-grey, one scale per filter."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heights = [-(-len(filters) // COLUMNS) * (CELL + (0.2 if len(captions) else 0)) + 0.35 for filters, captions, _ in groups]
    figure = Figure(figsize=(CELL * COLUMNS + 0.1, sum(heights)), layout="constrained", facecolor=PAPER)
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)  # type: ignore[union-attr]
    parts = figure.subfigures(len(groups), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, (filters, captions, title) in zip(parts, groups, strict=True):
        head_line(part, title)
        reach = np.maximum(np.abs(filters).max(axis=tuple(range(1, filters.ndim)), keepdims=True), 1e-30)
        tiles = 0.5 + 0.5 * filters / reach
        for index, one in enumerate(part.subplots(-(-len(tiles) // COLUMNS), COLUMNS, squeeze=False).flat):
            if index >= len(tiles):
                one.set_visible(False)
                continue
            dress_picture(one).imshow(tiles[index], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            if len(captions):
                one.set_title(captions[index], fontsize=TICK_SIZE, color=INK, pad=2.5)
    return figure
