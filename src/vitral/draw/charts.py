"""Bars, dots and calibration: what a model predicts, what its heads do, what its confidence is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.text import percent
from vitral.draw import style
from vitral.draw.overlay import enlarge
from vitral.draw.style import add_title, jittered, label_axes, legend, new_figure, percent_axis, series_colour, style_axes, style_image
from vitral.draw.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def prediction_chart(
    names: Sequence[str],
    logits: Sequence[float] | np.ndarray,
    probabilities: Sequence[float] | np.ndarray,
    *,
    image: Image.Image | None = None,
    title: str = "",
) -> Figure:
    """The top classes, best first: logits and probabilities as bars that share their names, the image beside them."""
    _same_length(names, logits, probabilities)
    columns = 3 if image is not None else 2
    height = max(1.5, 0.27 * len(names) + 0.75)
    widths = [max(1.4, min(2.6, height * 0.85)), 2.6, 2.3] if image is not None else [2.6, 2.3]
    figure, axes = new_figure(
        sum(widths) + 0.065 * max(len(shorten(name)) for name in names) + 0.2,
        height + (0.3 if title else 0),
        1,
        columns,
        width_ratios=widths,
    )
    if image is not None:
        axes[0, 0].imshow(enlarge(image))
        style_image(axes[0, 0])
    draw_bars(axes[0, -2], [shorten(name) for name in names], logits, "logit", "{:.2f}")
    draw_bars(axes[0, -1], [""] * len(names), np.asarray(probabilities) * 100, "probability (%)", "{:.1f}")
    percent_axis(axes[0, -1], 118, [0, 25, 50, 75, 100])
    add_title(figure, title)
    return figure


def bar_chart(
    names: Sequence[str],
    values: Sequence[float] | np.ndarray,
    *,
    label: str = "",
    title: str = "",
    low: Sequence[float] | np.ndarray | None = None,
    high: Sequence[float] | np.ndarray | None = None,
    form: str = "{:.3g}",
) -> Figure:
    """Bars from top to bottom with their values written; `low` and `high`: ends of an interval per bar."""
    _same_length(names, values)
    shown = [shorten(name, 40) for name in names]
    figure, axes = new_figure(4.2 + 0.065 * max(map(len, shown)), max(1.3, 0.3 * len(names) + 0.75))
    draw_bars(axes[0, 0], shown, values, label, form, low, high)
    add_title(figure, title)
    return figure


def head_scatter(values: np.ndarray, *, label: str, title: str = "", largest: float | None = None, largest_label: str = "") -> Figure:
    """`values` (blocks, heads): a dot per head against depth, their mean as a line; `largest`: a dashed line to compare with."""
    if values.ndim != 2 or not values.size:
        raise UsageError(f"values of shape {values.shape}", "give (blocks, heads)")
    figure, axes = new_figure(5.2, 3.2)
    one = style_axes(axes[0, 0], grid="y")
    blocks, heads = values.shape
    one.scatter(jittered(blocks, heads).ravel(), values.ravel(), s=18, color=series_colour(0), alpha=0.75, linewidths=0, label="one head")
    one.plot(np.arange(blocks), values.mean(axis=1), color=series_colour(0), linewidth=1.4, label="mean of heads")
    if largest is not None:
        one.axhline(largest, **style.DASHED, label=largest_label or None)
    one.set_xticks(range(0, blocks, 1 if blocks <= 16 else 2))
    label_axes(one, "block", label)
    if values.min() >= 0:
        one.set_ylim(bottom=0)
    legend(one, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)
    add_title(figure, title)
    return figure


def reliability_figure(
    confidence: np.ndarray, accuracy: np.ndarray, counts: np.ndarray, *, error: float | None = None, title: str = ""
) -> Figure:
    """Per bin of confidence: its mean, how often right, how many. Empty bins are left out. `error`: expected calibration error."""
    _same_length(confidence, accuracy, counts)
    figure, axes = new_figure(3.6, 4.2, 2, 1, sharex=True, height_ratios=[3, 1])
    top, bottom = axes[0, 0], axes[1, 0]
    full = np.asarray(counts) > 0
    edges = np.linspace(0, 1, len(counts) + 1)
    middles, width = (edges[:-1] + edges[1:]) / 2, 1 / len(counts)
    style_axes(top, grid="both")
    top.bar(middles[full], np.asarray(accuracy)[full], width * 0.94, color=series_colour(0), label="right")
    top.plot([0, 1], [0, 1], **{**style.DASHED, "linewidth": 1}, label="perfectly calibrated")
    top.plot(
        np.asarray(confidence)[full],
        np.asarray(accuracy)[full],
        "o",
        color=series_colour(1),
        markersize=4,
        clip_on=False,  # bins that are always right or never lie on the frame
        label="mean confidence of the bin",
    )
    top.set_xlim(0, 1)
    top.set_ylim(0, 1)
    label_axes(top, y="share that is right")
    bottom.bar(
        middles, np.asarray(counts) / max(1, np.sum(counts)) * 100, width * 0.94, color=style.LINE, edgecolor=style.SOFT, linewidth=0.5
    )
    label_axes(bottom, "confidence", "% of pictures")
    # Below: with few pictures the bars may stand anywhere.
    figure.legend(
        *top.get_legend_handles_labels(), loc="outside lower center", fontsize=style.TICK_SIZE, labelcolor=style.INK, frameon=False
    )
    score = "" if error is None else f"calibration error {percent(error)}"
    add_title(figure, " – ".join(part for part in (title, score) if part))
    return figure


def draw_bars(
    axes: Axes,
    names: Sequence[str],
    values: Sequence[float] | np.ndarray,
    label: str,
    form: str,
    low: Sequence[float] | np.ndarray | None = None,
    high: Sequence[float] | np.ndarray | None = None,
) -> None:
    """Bars from top to bottom in the given axes, the number at the end of each."""
    numbers = np.asarray(values, dtype=np.float64)
    rows = np.arange(len(names))
    axes.barh(rows, numbers, height=0.68, color=series_colour(0))
    ends = numbers
    if low is not None and high is not None:
        low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        axes.errorbar(
            numbers, rows, xerr=np.stack([numbers - low, high - numbers]), fmt="none", ecolor=style.INK, elinewidth=1, capsize=2.5
        )
        ends = np.where(numbers >= 0, high, low)
    for row, number, end in zip(rows, numbers, ends, strict=True):
        axes.annotate(
            form.format(number).replace("-", "−"), (end, row), (3 if number >= 0 else -3, 0), textcoords="offset points",
            va="center", ha="left" if number >= 0 else "right", fontsize=style.TICK_SIZE, color=style.INK,
        )  # fmt: skip
    axes.set_yticks(rows, names)
    axes.tick_params(axis="y", length=0, labelcolor=style.INK)
    axes.invert_yaxis()
    axes.margins(x=0.22)
    axes.locator_params(axis="x", nbins=5)
    if numbers.min() >= 0:
        axes.set_xlim(left=0)
    else:
        axes.axvline(0, color=style.SOFT, linewidth=0.8)
    label_axes(axes, label)


def _same_length(*lists: Sequence | np.ndarray) -> None:
    if not len(lists[0]) or len({len(one) for one in lists}) != 1:
        raise UsageError(f"a chart of {' and '.join(str(len(one)) for one in lists)} entries", "give as many values as names, at least one")
