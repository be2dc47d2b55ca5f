"""One page per picture: what the model saw, what it said, and where it looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from vitral.base.errors import UsageError
from vitral.draw.charts import draw_bars
from vitral.draw.heatmap import ALPHA, Heatmap
from vitral.draw.overlay import enlarge
from vitral.draw.scale import Scale
from vitral.draw.style import INK, SOFT, TICK_SIZE, add_title, empty_figure, percent_axis, style_axes, style_image, used_axes
from vitral.draw.text import shorten, wrap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 2.3
"""Of one map, in inches."""
_BAR = 0.6
"""Of the scale beside it."""
_SIDE = 640
_COARSE = 8
"""Patches a side up to which maps are drawn patch by patch."""
BRIGHTEST = 97
"""Percentile of a map at which its colours end."""
_NEARLY = 0.05
"""Share of the highest value below which a map's lowest is called zero."""
_FEW_PATCHES = 64
"""Smaller maps show their whole range."""
COLOURS_END = f"colours up to the {BRIGHTEST}th percentile"
_SIGNS = "red above zero, blue below"
STARTS = "white frame: the patch that the map starts from"


def inside_sheet(
    image: Image.Image | None,
    ranking: Any,
    heats: Sequence[Heatmap],
    captions: Sequence[str],
    *,
    title: str = "",
    columns: int = 4,
    mode: str = "bicubic",
) -> Figure:
    """The picture and its ranked classes on top, the maps below; each map has its own scale beside it.

    ranking: (class, probability), with their `logits`; empty: a model without classes.
    """
    names = [name for name, _ in ranking]
    if not heats or len(captions) != len(heats):
        raise UsageError(f"{len(heats)} maps and {len(captions)} captions", "give at least one map, and a caption for each")
    images, scales = zip(*(clipped_overlay(heat, mode) for heat in heats), strict=True)
    columns = max(2, min(columns, len(images)))
    rows = -(-len(images) // columns)
    shape = min(max(float(np.median([image.height / image.width for image in images])), 0.4), 2.0)
    top = max(1.7, 0.24 * len(names) + 0.7) if names else 0.0
    texts = [wrap(caption, _WIDTH) for caption in captions]
    height = _WIDTH * shape + 0.16 + 0.13 * max(text.count("\n") + 1 for text in texts)
    figure = empty_figure((_WIDTH + _BAR) * columns + 0.1, top + height * rows + 0.35, w_pad=0.03, h_pad=0.03, wspace=0.01, hspace=0.01)
    parts = figure.subfigures(2 if names else 1, 1, height_ratios=[top, height * rows] if names else [1], squeeze=False)[:, 0]
    if names:
        ratio = [1.0, 1.5, 1.1] if image is not None else [1.5, 1.1]
        axes = parts[0].subplots(1, len(ratio), width_ratios=ratio, squeeze=False, gridspec_kw={"wspace": 0.05})[0]
        if image is not None:
            style_image(axes[0]).imshow(enlarge(image))
        draw_bars(style_axes(axes[-2]), [shorten(name, 30) for name in names], ranking.logits, "logit", "{:.1f}")
        draw_bars(style_axes(axes[-1]), [""] * len(names), 100 * np.asarray([share for _, share in ranking]), "probability (%)", "{:.1f}")
        percent_axis(axes[-1], 125, [0, 50, 100])
    for index, one in enumerate(used_axes(parts[-1].subplots(rows, columns, squeeze=False), len(images))):
        style_image(one).imshow(images[index])
        one.set_title(texts[index], fontsize=TICK_SIZE, color=INK, pad=3)
        scales[index].bar(parts[-1], one)
    notes = [COLOURS_END] if any(scale.cut for scale in scales) else []
    notes += [_SIGNS] if any(heat.signed for heat in heats) else []
    notes += [STARTS] if any(heat.start is not None for heat in heats) else []
    if notes:
        parts[-1].supxlabel("; ".join(notes), fontsize=TICK_SIZE, color=SOFT)
    add_title(figure, title)
    return figure


def overlay_mode(grid: tuple[int, ...]) -> str:
    """A coarse grid is shown as the patches it is: smoothing would put a peak where no patch has it."""
    return "patches" if max(grid) <= _COARSE else "bicubic"


def clipped_overlay(heat: Heatmap, mode: str = "bicubic", size: int = _SIDE) -> tuple[Image.Image, Scale]:
    """An overlay, and its scale, which ends at the map's 97th percentile: a few artefact patches cannot outshine all the others."""
    own_size = size if heat.original is not None else None
    values = np.abs(heat.grid) if heat.signed else heat.grid
    high = float(np.percentile(values, BRIGHTEST))
    low = -high if heat.signed else float(values.min())
    low = 0.0 if 0 <= low < _NEARLY * high else low
    if values.size < _FEW_PATCHES or high <= low:
        return heat.overlay(ALPHA, mode=mode, size=own_size), heat.scale()
    # Cut before it is smoothed: a cubic through a spike would swing below zero beside it.
    cut = replace(heat, grid=np.clip(heat.grid, low, high))
    return cut.overlay(ALPHA, mode=mode, size=own_size, limits=(low, high)), heat.scale(limits=(low, high), cut=True)
