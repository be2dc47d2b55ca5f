"""One page per picture: what the model saw, what it said, and where it looked."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.picture import Box
from vitral.draw.heatmap import Heatmap
from vitral.draw.overlay import enlarge
from vitral.draw.palette import (
    INK,
    PAPER,
    SOFT,
    TICK_SIZE,
    dress,
    dress_picture,
    head_line,
    name_axes,
    percent_axis,
    series_colour,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL = 2.3
SIDE = 640
BRIGHTEST = 97
"""Percentile of a map at which its colours end."""
FEW_CELLS = 64
"""Smaller maps show their whole range."""
COLOURS_END = f"colours up to the {BRIGHTEST}th percentile"
SIGNS = "red above zero, blue below"


def inside_sheet(
    picture: Image.Image | None,
    names: Sequence[str],
    logits: Sequence[float],
    probabilities: Sequence[float],
    heats: Sequence[Heatmap],
    captions: Sequence[str],
    *,
    title: str = "",
    columns: int = 4,
    mode: str = "bicubic",
) -> Figure:
    """The picture and its ranked classes on top, the maps below; each map has its own colour range."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not heats or len(captions) != len(heats):
        raise UsageError(f"{len(heats)} maps and {len(captions)} captions", "give at least one map, and a caption for each")
    images = [clear_overlay(heat, mode) for heat in heats]
    columns = max(2, min(columns, len(images)))
    rows = -(-len(images) // columns)
    shape = min(max(float(np.median([image.height / image.width for image in images])), 0.4), 2.0)
    top = max(1.7, 0.24 * len(names) + 0.7) if names else 0.0
    texts = ["\n".join(textwrap.wrap(caption, round(CELL * 15), max_lines=2, placeholder="…")) for caption in captions]
    cell = CELL * shape + 0.16 + 0.13 * max(text.count("\n") + 1 for text in texts)
    figure = Figure(figsize=(CELL * columns + 0.1, top + cell * rows + 0.35), layout="constrained", facecolor=PAPER)
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03, wspace=0.01, hspace=0.01)  # type: ignore[union-attr]
    parts = figure.subfigures(2 if names else 1, 1, height_ratios=[top, cell * rows] if names else [1], squeeze=False)[:, 0]
    if names:
        ratio = [1.0, 1.5, 1.1] if picture is not None else [1.5, 1.1]
        axes = parts[0].subplots(1, len(ratio), width_ratios=ratio, squeeze=False, gridspec_kw={"wspace": 0.05})[0]
        if picture is not None:
            dress_picture(axes[0]).imshow(enlarge(picture))
        _bars(dress(axes[-2]), [shorten(name, 30) for name in names], np.asarray(logits), "logit", "{:.1f}")
        _bars(dress(axes[-1]), [""] * len(names), 100 * np.asarray(probabilities), "probability (%)", "{:.1f}")
        percent_axis(axes[-1], 125, [0, 50, 100])
    cells = parts[-1].subplots(rows, columns, squeeze=False).ravel()
    for index, one in enumerate(cells):
        if index >= len(images):
            one.set_visible(False)
            continue
        dress_picture(one).imshow(images[index])
        one.set_title(texts[index], fontsize=TICK_SIZE, color=INK, pad=3)
    notes = [COLOURS_END] if any(heat.grid.size >= FEW_CELLS for heat in heats) else []
    notes += [SIGNS] if any(heat.signed for heat in heats) else []
    if notes:
        parts[-1].supxlabel("; ".join(notes), fontsize=TICK_SIZE, color=SOFT)
    head_line(figure, title)
    return figure


def clear_overlay(heat: Heatmap, mode: str = "bicubic", size: int = SIDE) -> Image.Image:
    """An overlay whose colours end at the map's 97th percentile: a few artefact patches cannot outshine all the others."""
    size_wanted = size if heat.original is not None else None
    values = np.abs(heat.grid) if heat.signed else heat.grid
    high = float(np.percentile(values, BRIGHTEST))
    low = -high if heat.signed else float(values.min())
    if values.size < FEW_CELLS or high <= low:
        return heat.overlay(0.7, mode=mode, size=size_wanted)
    # Cut before it is smoothed: a cubic through a spike would swing below zero beside it.
    cut = replace(heat, grid=np.clip(heat.grid, low, high))
    return cut.overlay(0.7, mode=mode, size=size_wanted, limits=(low, high))


def outlined(heat: Heatmap, patch: tuple[int, int], size: int = SIDE, mode: str = "bicubic") -> Image.Image:
    """A map's overlay with one of its patches framed: the one that looks."""
    from PIL import ImageDraw

    image = heat.overlay(0.7, mode=mode, size=size if heat.original is not None else None)
    across = down = 1.0
    box = Box(0, 0, image.width, image.height)
    if heat.original is not None and heat.box is not None:
        across, down, box = image.width / heat.original.width, image.height / heat.original.height, heat.box
    left, top = box.to_original(patch[1], patch[0], heat.grid.shape)
    right, bottom = box.to_original(patch[1] + 1, patch[0] + 1, heat.grid.shape)
    frame = (left * across, top * down, right * across, bottom * down)
    ImageDraw.Draw(image).rectangle(frame, outline=series_colour(5), width=max(1, round(min(image.size) / 120)))
    return image


def _bars(axes: Axes, names: Sequence[str], values: np.ndarray, label: str, form: str) -> None:
    places = np.arange(len(names))
    axes.barh(places, values, height=0.66, color=series_colour(0))
    for place, value in zip(places, values, strict=True):
        side = "left" if value >= 0 else "right"
        shift = (3 if value >= 0 else -3, 0)
        axes.annotate(
            form.format(value), (value, place), shift, textcoords="offset points", va="center", ha=side, fontsize=TICK_SIZE, color=INK
        )
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.invert_yaxis()
    axes.margins(x=0.2)
    if values.min() < 0:
        axes.axvline(0, color=SOFT, linewidth=0.8)
    name_axes(axes, label)
