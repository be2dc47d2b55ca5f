"""What the head says at every depth: the classes' probabilities from block to block, and what each patch is called there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from vitral.base.errors import UsageError
from vitral.draw.style import (
    INK,
    SEQUENTIAL,
    TICK_SIZE,
    add_title,
    colour_bar,
    depth_ticks,
    empty_figure,
    label_axes,
    legend,
    series_colour,
    series_marker,
    style_axes,
    style_image,
    used_axes,
)
from vitral.draw.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

_LINES = 5
_PANELS = 6
"""Depths at which the patches are shown."""
_FAR = 30
"""Times chance, from which a linear scale would show black panels alone."""


def lens_figure(
    probabilities: np.ndarray,
    patches: np.ndarray,
    names: list[str] | tuple[str, ...],
    target: int,
    *,
    title: str = "",
    original: Image.Image | None = None,
    unit: str = "probability",
    multi_label: bool = False,
) -> Figure:
    """`probabilities` (L + 1, K) and `patches` (L + 1, h, w, K): the embedding first, then each block; `unit` output: its values."""
    if probabilities.ndim != 2 or patches.ndim != 4 or len(patches) != len(probabilities):
        raise UsageError(f"probabilities of shapes {probabilities.shape} and {patches.shape}", "give (L + 1, K) and (L + 1, h, w, K)")
    depths = len(probabilities)
    shown = sorted({round(depth) for depth in np.linspace(0, depths - 1, min(_PANELS, depths))})
    columns = 3
    rows = -(-(len(shown)) // columns)
    shape = patches.shape[1] / patches.shape[2]
    figure = empty_figure(7.4, 2.7 + rows * (2.1 * shape + 0.75), h_pad=0.04, w_pad=0.04)
    top, bottom = figure.subfigures(2, 1, height_ratios=[2.7, rows * (2.1 * shape + 0.75)], squeeze=False)[:, 0]
    above = top.subplots(1, 1 if original is None else 2, squeeze=False, width_ratios=[1] if original is None else [1, 2.6])[0]
    if original is not None:
        style_image(above[0]).imshow(original)
    _draw_depths(above[-1], probabilities, names, target, unit)
    share = unit == "probability"
    norm, note = _colours(patches[shown][..., target], patches.shape[-1] if share and not multi_label else 1, share)
    axes = bottom.subplots(rows, columns, squeeze=False)
    image = None
    for depth, one in zip(shown, used_axes(axes, len(shown)), strict=True):
        values = patches[depth]  # (h, w, K)
        image = style_image(one).imshow(values[..., target], cmap=SEQUENTIAL, norm=norm, interpolation="nearest")
        counts = np.bincount(values.argmax(axis=-1).ravel(), minlength=values.shape[-1])
        called = [f"{shorten(names[number], 14)} {counts[number]}" for number in np.argsort(-counts, kind="stable")[:3] if counts[number]]
        where = "embedding" if depth == 0 else f"block {depth - 1}"
        text = f"{where}: patches called\n" + ", ".join(called) if share else f"{where}: mean {values.mean():.3g}"
        one.set_title(text, fontsize=TICK_SIZE - 1, color=INK, pad=3)
    if image is not None:
        read = f"probability of {shorten(names[target], 20)}" if share else unit
        colour_bar(bottom, image, axes, f"{read} at the patch{note}")  # type: ignore[arg-type]
    add_title(figure, title)
    return figure


def _draw_depths(axes: Axes, probabilities: np.ndarray, names: list[str] | tuple[str, ...], target: int, unit: str = "probability") -> None:
    """The classes that matter at the end or on the way, from depth to depth."""
    style_axes(axes, grid="y")
    end = np.argsort(-probabilities[-1], kind="stable")[:2]
    peaks = np.argsort(-probabilities.max(axis=0), kind="stable")
    chosen = list(dict.fromkeys([target, *end.tolist(), *peaks.tolist()]))[:_LINES]
    depths = np.arange(len(probabilities)) - 1
    for index, number in enumerate(chosen):
        axes.plot(
            depths,
            (100 if unit == "probability" else 1) * probabilities[:, number],
            color=series_colour(index),
            marker=series_marker(index),
            markersize=3.5,
            linewidth=1.5,
            label=shorten(names[number], 24),
        )
    depth_ticks(axes, depths, 13)
    if unit == "probability":
        axes.set_ylim(0, 103)
    label_axes(axes, "after block", "probability (%)" if unit == "probability" else unit)
    legend(axes, loc="upper left")


def _colours(values: np.ndarray, classes: int, share: bool = True) -> tuple[Normalize, str]:
    """By the logarithm from chance on, where probabilities rise far above it: among a thousand classes, 1 % early on is much."""
    from matplotlib.colors import LogNorm, Normalize

    if not share:
        return Normalize(float(values.min()), float(values.max())), ""
    reach, chance = float(values.max()) or 1.0, 1 / classes
    if reach < _FAR * chance:
        return Normalize(0, reach), ""
    return LogNorm(chance, reach, clip=True), f"\n(logarithmic; black: chance, {chance:.2g}, or less)"
