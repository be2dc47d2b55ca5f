"""Lines with bands: training curves of one run or many, accuracy against size or cost."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vitral.base.errors import UsageError
from vitral.base.text import compact, readable
from vitral.draw.style import (
    LABEL_SIZE,
    SOFT,
    TICK_SIZE,
    add_title,
    label_axes,
    legend,
    new_figure,
    series_colour,
    series_marker,
    style_axes,
)
from vitral.draw.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
"""The lines of a metrics.jsonl."""
_NOTE_WIDTH = 92
"""Letters in a line of the note under a chart."""
_LONGEST, _LETTER, _HANDLE, ROW = 90, 0.066, 0.6, 0.17
"""Of a legend: most letters of a name; inches of a letter, of a line's sample with the space after the name, of a row."""


@dataclass(frozen=True)
class Line:
    """One line of a chart; `low` and `high` are the edges of its band."""

    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    label: str = ""
    low: Sequence[float] | np.ndarray | None = None
    high: Sequence[float] | np.ndarray | None = None
    dashed: bool = False
    markers: bool = True
    colour: int | None = None
    """Which of the series' colours; None: the next one."""
    marker: int | None = None
    """Which of the series' markers; None: the one of its colour."""


def line_chart(
    lines: Sequence[Line],
    *,
    x: str,
    y: str,
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    percent: bool = False,
    note: str = "",
) -> Figure:
    """Lines with bands in one chart. `percent`: values are fractions, shown in per cent. `note` says what the bands are."""
    if not lines:
        raise UsageError(f"no lines for the chart {title!r}", "give at least one")
    note = "\n".join(piece for line in note.splitlines() for piece in textwrap.wrap(line, _NOTE_WIDTH))
    figure, axes = new_figure(5.6, 3.5 + 0.16 * len(note.splitlines()))
    one = style_axes(axes[0, 0], grid="both")
    for index, line in enumerate(lines):
        _draw_line(one, line, index, 100 if percent else 1)
    if not log_x and all(np.equal(np.mod(line.x, 1), 0).all() for line in lines):
        one.locator_params(axis="x", integer=True)  # there is no block 1.25
    if log_x:
        one.set_xscale("log")
        measured = [line for line in lines if line.markers] or lines  # lines without markers are fits
        _log_ticks(one, np.concatenate([np.asarray(line.x, dtype=float) for line in measured]))
    if log_y:
        one.set_yscale("log")
        ticks = _log_tick_values(*one.get_ylim())
        one.set_yticks(ticks, [_written(tick) for tick in ticks])  # 10, 20, 30, 40, 60, 100: not 6 × 10¹
        one.set_yticks([], minor=True)
        one.tick_params(axis="y", labelsize=TICK_SIZE)
    label_axes(one, x, f"{y} (%)" if percent else y)
    legend(one, loc="best" if len(lines) <= 4 else "center left", **({} if len(lines) <= 4 else {"bbox_to_anchor": (1.01, 0.5)}))
    if note:
        figure.supxlabel(note, fontsize=TICK_SIZE, color=SOFT)
    add_title(figure, title)
    return figure


def _draw_line(axes: Axes, line: Line, index: int, scale: float = 1) -> None:
    xs, ys = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float) * scale
    if len(xs) != len(ys) or not len(xs):
        raise UsageError(f"line {line.label!r} has {len(xs)} places and {len(ys)} values", "give as many of both, at least one")
    number = index if line.colour is None else line.colour
    colour = series_colour(number)
    marker = series_marker(number if line.marker is None else line.marker) if line.markers else ""
    dashes = (0, (4, 2)) if line.dashed else "-"
    axes.plot(xs, ys, color=colour, linewidth=1.6, linestyle=dashes, marker=marker, markersize=4, label=line.label or None)
    if line.low is not None and line.high is not None:
        axes.fill_between(xs, np.asarray(line.low) * scale, np.asarray(line.high) * scale, color=colour, alpha=0.18, linewidth=0)


def training_curves(runs: Mapping[str, Rows | Sequence[Rows]], *, title: str = "") -> Figure:
    """Accuracy and loss over epochs: validation solid, training dashed. A name with several runs (seeds) gets mean and range.

    Where no run has an accuracy, because they learnt without labels, effective rank is shown in its place.
    """
    groups = {name: _as_group(rows) for name, rows in runs.items()}
    figure, axes = new_figure(7.2, 3.1, 1, 2)
    drawn = False
    any_band = any(len(group) > 1 for group in groups.values())
    named = any("accuracy" in row for group in groups.values() for rows in group for row in rows)
    first = ("accuracy", "accuracy (%)", 100) if named else ("effective_rank", "effective rank", 1)
    for panel, (key, label, scale) in zip(axes[0], (first, ("loss", "loss", 1)), strict=True):
        style_axes(panel, grid="y")
        for index, (name, group) in enumerate(groups.items()):
            for split, dashed in (("train", True), ("validation", False)):
                if line := _gather(group, split, key):
                    text = " ".join(part for part in (name if len(groups) > 1 else "", split) if part)
                    few = len(line[0]) <= 2
                    _draw_line(
                        panel,
                        Line(line[0], line[1], text, line[2], line[3], dashed, few, index if len(groups) > 1 else int(dashed)),
                        index,
                        scale,
                    )
                    drawn = True
        label_axes(panel, "epoch", label)
        panel.margins(x=0.02)
        panel.locator_params(axis="x", integer=True)
    if not drawn:
        raise UsageError("the journal holds no training or validation lines", "train at least one epoch")
    handles, labels = axes[0, 1].get_legend_handles_labels()
    if handles:
        note = "band: lowest to highest of the seeds" if any_band else None
        labels = [shorten(label, _LONGEST) for label in labels]
        fitting = max(1, int(figure.get_figwidth() / (_LETTER * max(map(len, labels)) + _HANDLE)))
        columns = min(4, len(labels), fitting)
        figure.set_figheight(figure.get_figheight() + ROW * (-(-len(labels) // columns) - 1))
        box = figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=TICK_SIZE, frameon=False, title=note)
        box.get_title().set_fontsize(TICK_SIZE)
        box.get_title().set_color(SOFT)
    add_title(figure, title)
    return figure


def read_curve(rows: Rows, split: str, key: str) -> tuple[np.ndarray, np.ndarray]:
    """(epochs, values) of one run; lines at the same place are averaged, missing and broken values left out.

    Training lines come several an epoch and jump with each batch: in a run of three epochs or more they are averaged by epoch.
    """
    values = [
        (float(row["epoch"]), float(row[key]))
        for row in rows
        if row.get("split") == split and _finite(row.get(key)) and _finite(row.get("epoch"))
    ]
    end = round(max((epoch for epoch, _ in values), default=0.0), 3)
    by_epoch = split == "train" and end >= 3
    by_end: dict[float, list[float]] = {}
    for epoch, value in values:
        # Rounded first: the last line of epoch 2 may stand at 2.0001. A run may end inside an epoch: its line ends there, too.
        by_end.setdefault(min(float(np.ceil(round(epoch, 3))), end) if by_epoch else epoch, []).append(value)
    epochs = sorted(by_end)
    return np.array(epochs), np.array([np.mean(by_end[epoch]) for epoch in epochs])


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))


def _as_group(rows: Rows | Sequence[Rows]) -> list[Rows]:
    """One run's rows, or several runs' rows, as a list of runs."""
    if not len(rows) or isinstance(rows[0], Mapping):
        return [rows]  # type: ignore[list-item]
    return list(rows)  # type: ignore[arg-type]


def _gather(group: Iterable[Rows], split: str, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None] | None:
    """Mean, lowest and highest over the runs, at the epochs that all of them have."""
    curves = [curve for rows in group if len((curve := read_curve(rows, split, key))[0])]
    if not curves:
        return None
    if len(curves) == 1:
        return *curves[0], None, None
    common = sorted(set.intersection(*(set(epochs.tolist()) for epochs, _ in curves)))
    if not common:
        return None
    values = np.stack([curve[np.isin(epochs, common)] for epochs, curve in curves])
    return np.array(common), values.mean(axis=0), values.min(axis=0), values.max(axis=0)


def _log_tick_values(low: float, high: float, apart: float = 0.05) -> list[float]:
    """Where to label a logarithmic axis from `low` to `high`: three places or more, and none nearer than `apart` of the axis."""
    from matplotlib.ticker import MaxNLocator

    decades = np.log10(high / low)
    room = apart * decades
    nearest = {(1, 2, 3, 4, 6): np.log10(4 / 3), (1, 2, 5): np.log10(2), (1, 3): np.log10(3)}
    steps = next((steps for steps, distance in nearest.items() if distance >= room), (1,))
    exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1, max(1, int(np.ceil(room))))
    round_ones = [tick for exponent in exponents for step in steps if low <= (tick := float(f"{step}e{exponent}")) <= high]
    if len(round_ones) >= 3:
        return round_ones
    # Between 70 and 100 a log axis is nearly even: so are its places.
    ticks: list[float] = []
    for tick in MaxNLocator(6, steps=[1, 2, 5, 10], min_n_ticks=4).tick_values(low, high):
        if low <= tick <= high and (not ticks or np.log10(tick / ticks[-1]) >= room):
            ticks.append(float(tick))
    return ticks


def _written(tick: float) -> str:
    """`60`, `0.05`, `2·10⁸`: round numbers of many digits by their power of ten."""
    round_one = tick >= 1e4 and tick == float(f"{tick:.1e}")
    return compact(tick).removeprefix("1·") if round_one else f"{tick:g}"


def _log_ticks(axes: Axes, measured: np.ndarray) -> None:
    """A tick at each measured place when they are few: 1,250 · 2,500 · 5,000 says more than 10³."""
    distinct = np.unique(measured)
    if not 1 < len(distinct) <= 7 or distinct[-1] >= 1e7:
        around = _log_tick_values(*axes.get_xlim(), apart=0.14)
        axes.set_xticks(around, [readable(tick) if tick == float(f"{tick:.1e}") else f"{tick:.4g}" for tick in around])
        axes.set_xticks([], minor=True)
        return
    axes.set_xticks(distinct, [f"{tick:,.0f}" if tick >= 10 else f"{tick:g}" for tick in distinct])
    axes.minorticks_off()
    axes.xaxis.label.set_fontsize(LABEL_SIZE)
