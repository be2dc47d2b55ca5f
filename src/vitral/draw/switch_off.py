"""What a model loses when a part of it is switched off: heads and parts of blocks side by side, each with its scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitral.base.errors import UsageError
from vitral.base.text import signed
from vitral.draw.style import INK, TICK_SIZE, add_title, colour_bar, label_axes, limits_of, map_name, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def ablation_figure(
    heads: np.ndarray, parts: np.ndarray, names: Sequence[str], title: str = "", label: str = "change of the probability"
) -> Figure:
    """`heads` (L, h) and `parts` (L, n): change of the score, blue where the model gets worse. Values are written where there is room."""
    if heads.ndim != 2 or parts.ndim != 2 or len(heads) != len(parts) or parts.shape[1] != len(names):
        raise UsageError(f"changes of shapes {heads.shape} and {parts.shape}", "give (blocks, heads) and (blocks, parts)")
    depth = len(heads)
    widths = [max(1.6, 0.42 * heads.shape[1]), max(1.6, 0.62 * len(names))]
    figure, axes = new_figure(sum(widths) + 1.9, max(1.8, 0.27 * depth) + 0.95, 1, 2, width_ratios=widths)
    for one, values, what, ticks in ((axes[0, 0], heads, "head", None), (axes[0, 1], parts, "part of the block", names)):
        low, high = limits_of(values, signed=True)  # parts matter far more than single heads: each has its own scale
        image = one.imshow(values, cmap=map_name(True), vmin=low or -1, vmax=high or 1, aspect="auto", interpolation="nearest")
        step = max(1, -(-values.shape[1] // 16))
        one.set_xticks(range(0, values.shape[1], step), ticks or [str(index) for index in range(0, values.shape[1], step)])
        one.set_yticks(range(0, depth, 1 if depth <= 24 else 2))
        if values.shape[1] <= 8 and depth <= 32:
            for row, column in np.ndindex(values.shape):
                ink = "white" if abs(values[row, column]) > 0.6 * (high or 1) else INK
                one.text(column, row, signed(float(values[row, column])), ha="center", va="center", fontsize=TICK_SIZE - 2, color=ink)
        for spine in one.spines.values():
            spine.set_visible(False)
        one.tick_params(length=0)
        label_axes(one, what, "block" if one is axes[0, 0] else "")
        colour_bar(figure, image, one, label if one is axes[0, 1] else "", aspect=30)
    add_title(figure, title)
    return figure
