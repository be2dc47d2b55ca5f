"""An audit as pictures: what every method made of one picture of a test, the numbers with their intervals, the fall of permuted models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from vitral.base.errors import UsageError
from vitral.draw.curves import Line, line_chart
from vitral.draw.heatmap import Heatmap
from vitral.draw.sheet import clipped_overlay, overlay_mode
from vitral.draw.style import DASHED, INK, LABEL_SIZE, TICK_SIZE, add_title, label_axes, new_figure, series_colour, style_axes, used_axes
from vitral.draw.tiles import picture_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE = 320
_COLOURS = {"use": 2, "with care": 4, "do not use": 1, "reference": 6}
"""Which colour of the series a verdict has."""


def example_figure(
    image: np.ndarray, maps: Mapping[str, np.ndarray], verdicts: Mapping[str, str], title: str = "", inside: np.ndarray | None = None
) -> Figure:
    """The picture of one test (H, W, 3) and every row's map of it; `inside` (h, w): what a map should find, framed."""
    original = Image.fromarray(image)
    shown = original.resize(
        (_SIDE, round(_SIDE * original.height / original.width)),
        Image.Resampling.NEAREST if max(original.size) <= 64 else Image.Resampling.LANCZOS,
    )
    tiles = [_framed(shown, inside)]
    for values in maps.values():
        heat = Heatmap(values, "", original=original, signed=bool((values < 0).any()))
        laid, _ = clipped_overlay(heat, overlay_mode(values.shape), _SIDE)
        tiles.append(_framed(laid.resize(shown.size), inside))
    captions = ["the picture", *(f"{name.replace('_', ' ')} ({verdicts.get(name, '')})" for name in maps)]
    return picture_sheet(tiles, captions, columns=4, title=title, width=1.75)


def _framed(image: Image.Image, inside: np.ndarray | None) -> Image.Image:
    """With a frame around the patches that are meant."""
    if inside is None or not inside.any():
        return image
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    down, across = image.height / inside.shape[0], image.width / inside.shape[1]
    box = (columns[0] * across, rows[0] * down, (columns[-1] + 1) * across - 1, (rows[-1] + 1) * down - 1)
    out = image.copy()
    ImageDraw.Draw(out).rectangle(box, outline=series_colour(5), width=3)
    return out


def score_figure(
    tests: Mapping[str, Mapping[str, tuple[float, float, float]]], verdicts: Mapping[str, str], chance: Mapping[str, float], title: str = ""
) -> Figure:
    """A panel for each test: every row's mean with its interval, coloured by its verdict; a dashed line where nothing is known."""
    if not tests:
        raise UsageError("no tests to draw", "give at least one")
    names = list(verdicts)
    columns = min(4, len(tests))
    rows = -(-len(tests) // columns)
    figure, axes = new_figure(1.9 * columns + 1.3, rows * (0.19 * len(names) + 0.75) + 0.5, rows, columns, sharey=True)
    for one, (test, values) in zip(used_axes(axes, len(tests)), tests.items(), strict=True):
        style_axes(one, grid="x")
        for row, name in enumerate(names):
            if name in values:
                mean, low, high = values[name]
                colour = series_colour(_COLOURS.get(verdicts[name], 6))
                one.plot([low, high], [row, row], color=colour, linewidth=1.5)
                one.plot(mean, row, "o", color=colour, markersize=4)
        if test in chance:
            one.axvline(chance[test], **DASHED)
        one.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
        one.set_title(test, fontsize=LABEL_SIZE, color=INK, loc="left", pad=3)
    axes[0, 0].invert_yaxis()
    handles = [axes[0, 0].plot([], [], "o-", color=series_colour(number), markersize=4, label=name)[0] for name, number in _COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=TICK_SIZE, frameon=False, labelcolor=INK)
    add_title(figure, title)
    return figure


def levels_figure(levels: Mapping[str, Sequence[float]], names: Sequence[str], title: str = "") -> Figure:
    """Rank correlation of each row's maps with those of ever more permuted models."""
    lines = [
        Line(np.flatnonzero(measured), np.asarray(values)[measured], name.replace("_", " "))
        for name, values in levels.items()
        if (measured := ~np.isnan(np.asarray(values, dtype=float))).any()
    ]
    figure = line_chart(lines, x="permuted from the top down to", y="rank correlation with the model's own maps", title=title)
    axes = figure.axes[0]
    axes.set_xticks(range(len(names)), list(names))
    axes.axhline(0, **DASHED)
    label_axes(axes)
    return figure
