"""Tables of numbers as pictures: an attention matrix, a grid of grids, a confusion matrix, what parts of a model do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitral.base.errors import UsageError
from vitral.base.text import percent
from vitral.base.text import signed as with_sign
from vitral.draw import style
from vitral.draw.style import add_title, colour_bar, label_axes, limits_of, map_name, new_figure, style_image, used_axes
from vitral.draw.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

_DECADES = 4
_MOST_LABELS = 25
"""More names than this cannot be read on an axis; then every second, third, … is written."""


def matrix_figure(
    matrices: np.ndarray,
    *,
    titles: Sequence[str] = (),
    title: str = "",
    prefix: int = 0,
    rows: str = "token that looks",
    columns: str = "token that is looked at",
    label: str = "attention",
    signed: bool = False,
    shared: bool = False,
    log: bool = False,
    per_row: int = 4,
) -> Figure:
    """One matrix (n, m) or several (k, n, m), each with its own scale unless `shared`; `prefix` tokens are set apart by a line.

    `log`: colours by the logarithm, over `_DECADES` powers of ten at most: of attention, a few weights are a thousand times the others.
    """
    from matplotlib.colors import Normalize

    if matrices.ndim == 2:
        matrices = matrices[None]
    if matrices.ndim != 3 or not matrices.size:
        raise UsageError(f"matrices of shape {matrices.shape}", "give (n, m) or (k, n, m)")
    count = len(matrices)
    across, down = min(per_row, count), -(-count // per_row)
    side = 4.2 if count == 1 else 1.75
    figure, axes = new_figure(side * across + 0.9, side * down + (0.45 if count == 1 else 0.55), down, across)
    whole = limits_of(matrices, signed)
    for index, one in enumerate(used_axes(axes, count)):
        low, high = whole if shared or count == 1 else limits_of(matrices[index], signed)
        norm = _log_norm(matrices if shared or count == 1 else matrices[index]) if log else Normalize(low, high)
        image = one.imshow(matrices[index], cmap=map_name(signed), norm=norm, interpolation="nearest")
        one.locator_params(integer=True)
        label_axes(one, title=titles[index] if index < len(titles) else "")
        one.title.set_fontsize(style.LABEL_SIZE)
        for edge in (prefix - 0.5,) if prefix else ():
            one.axhline(edge, color="white", linewidth=0.6)
            one.axvline(edge, color="white", linewidth=0.6)
        if index % across or index // across < down - 1:
            one.tick_params(labelbottom=index // across == down - 1 or index + across >= count, labelleft=index % across == 0)
        if index == count - 1 and (shared or count == 1):
            colour_bar(figure, image, axes, label, extend="min" if log and matrices.min() < norm.vmin else "neither")
    if count > 1 and not shared:
        from matplotlib.cm import ScalarMappable

        bar = ScalarMappable(cmap=map_name(signed))
        colour_bar(
            figure,
            bar,
            axes,
            label + ", each panel from its lowest to its highest",
            ticks=[0, 1],
            format=lambda value, _: ["low", "high"][round(value)],
        )
    figure.supxlabel(columns, fontsize=style.LABEL_SIZE, color=style.INK)
    figure.supylabel(rows, fontsize=style.LABEL_SIZE, color=style.INK)
    add_title(figure, title)
    return figure


def _log_norm(values: np.ndarray) -> LogNorm:
    from matplotlib.colors import LogNorm

    high = float(values.max()) or 1.0
    above = values[values >= high / 10**_DECADES]
    return LogNorm(float(above.min()) if above.size and above.min() < high else high / 10, high, clip=True)


def grid_of_grids(
    values: np.ndarray,
    *,
    title: str = "",
    label: str = "cosine similarity",
    limits: tuple[float, float] | None = None,
    signed: bool = True,
    rows: str = "row of the patch",
    columns: str = "column of the patch",
    longest: float = 6.0,
) -> Figure:
    """`values` (H, W, h, w): for each patch of an H × W grid a small map of all h × w patches, at its own place.

    `longest`: inches of the longer side.
    """
    if values.ndim != 4 or not values.size:
        raise UsageError(f"values of shape {values.shape} are no grid of grids", "give (H, W, h, w)")
    height, width, inner_height, inner_width = values.shape
    gap = max(1, round(min(inner_height, inner_width) * 0.12))
    page = page_of_grids(values, gap)
    shape = page.shape[0] / page.shape[1]
    page_width, page_height = (longest, longest * shape) if shape <= 1 else (longest / shape, longest)
    figure, axes = new_figure(max(page_width + 1.4, 3.4), max(1.9, page_height + 0.5) + (0.25 if title else 0))
    one = axes[0, 0]
    low, high = limits or limits_of(values, signed)
    image = one.imshow(np.ma.masked_invalid(page), cmap=map_name(signed), vmin=low, vmax=high, interpolation="nearest")
    step = max(1, -(-max(height, width) // _MOST_LABELS))
    one.set_xticks(*_middles(width, inner_width, gap, step))
    one.set_yticks(*_middles(height, inner_height, gap, step))
    label_axes(_frameless(one), columns, rows)
    colour_bar(figure, image, one, label, aspect=24 * max(1.0, shape))
    add_title(figure, title)
    return figure


def page_of_grids(values: np.ndarray, gap: int = 1) -> np.ndarray:
    """(H, W, h, w) → one page of numbers, NaN between the small maps."""
    height, width, inner_height, inner_width = values.shape
    page = np.full((height * (inner_height + gap) - gap, width * (inner_width + gap) - gap), np.nan)
    for row, column in np.ndindex(height, width):
        top, left = row * (inner_height + gap), column * (inner_width + gap)
        page[top : top + inner_height, left : left + inner_width] = values[row, column]
    return page


def confusion_figure(counts: np.ndarray, names: Sequence[str] = (), *, title: str = "") -> Figure:
    """`counts` (K, K), rows = true class: coloured by the share of each true class, numbers written where there is room.

    Of more classes than can be labelled, those that are taken for each other most, alike ones side by side.
    """
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not counts.size:
        raise UsageError(f"a confusion matrix of shape {counts.shape}", "give (classes, classes)")
    labels = [shorten(name, 18) for name in names] or [str(index) for index in range(len(counts))]
    right = np.trace(counts) / counts.sum() if counts.sum() else 0.0
    title = title or f"{percent(right)} of {int(counts.sum()):,} right"
    totals = counts.sum(axis=1, keepdims=True)
    if len(counts) > _MOST_LABELS:
        chosen = _most_confused(counts)
        title += f"; the {len(chosen)} of {len(counts):,} classes confused most"
        counts, totals, labels = counts[np.ix_(chosen, chosen)], totals[chosen], [labels[number] for number in chosen]
    classes = len(counts)
    shares = counts / np.where(totals > 0, totals, 1)
    side = min(max(0.42 * classes, 2.6), 7.5)
    longest = max(map(len, labels)) * 0.065
    figure, axes = new_figure(side + 1.2 + longest, side + 0.6 + longest)
    one = axes[0, 0]
    image = one.imshow(shares, cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
    if classes <= 16:
        for row, column in np.argwhere(counts).tolist():
            ink = style.INK if shares[row, column] > 0.55 else "white"
            _write(one, row, column, f"{int(counts[row, column])}", ink, style.TICK_SIZE - 1)
    style_image(one)
    one.set_xticks(range(classes), labels, rotation=90 if max(map(len, labels)) > 2 else 0)
    one.set_yticks(range(classes), labels)
    one.tick_params(length=0, labelsize=style.TICK_SIZE, colors=style.SOFT)
    label_axes(one, "predicted class", "true class")
    add_title(figure, title)
    colour_bar(figure, image, one, "share of the true class")
    return figure


def _most_confused(counts: np.ndarray, most: int = 20) -> list[int]:
    """The classes that are taken for each other most often, in an order that puts alike ones side by side."""
    both = np.asarray(counts, float) + np.asarray(counts, float).T
    np.fill_diagonal(both, 0)
    pairs: dict[int, None] = {}
    for cell in np.argsort(-both, axis=None, kind="stable"):
        pair = divmod(int(cell), len(both))
        if len(pairs.keys() | set(pair)) > most or not both[pair]:
            break
        pairs |= dict.fromkeys(pair)
    chosen = dict.fromkeys(list(pairs | dict.fromkeys(range(len(both))))[:most])
    chain, left = [next(iter(chosen))], list(chosen)[1:]
    while left:  # each time the one most confused with the last
        chain.append(left.pop(int(np.argmax(both[chain[-1], left]))))
    return chain


def _write(axes: Axes, row: int, column: int, text: str, colour: str, size: float) -> None:
    """A text in a cell."""
    axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)


def _frameless(axes: Axes) -> Axes:
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)
    return axes


def _middles(count: int, length: int, gap: int, step: int) -> tuple[list[float], list[str]]:
    numbers = range(0, count, step)
    return [number * (length + gap) + length / 2 - 0.5 for number in numbers], [str(number) for number in numbers]


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
                ink = "white" if abs(values[row, column]) > 0.6 * (high or 1) else style.INK
                _write(one, row, column, with_sign(float(values[row, column])), ink, style.TICK_SIZE - 2)
        _frameless(one)
        label_axes(one, what, "block" if one is axes[0, 0] else "")
        colour_bar(figure, image, one, label if one is axes[0, 1] else "", aspect=30)
    add_title(figure, title)
    return figure
