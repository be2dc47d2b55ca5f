"""The pictures of a study, drawn from its outcomes by `draw`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vitral.base.layout import CELLS, FIGURES
from vitral.draw.charts import bar_chart
from vitral.draw.curves import Line, line_chart, training_curves
from vitral.draw.provenance import command_line, save_figure
from vitral.run.folder import RunFolder
from vitral.study.fight.conduct import Conducted
from vitral.study.fight.statistics import Crossing, PowerLaw
from vitral.study.fight.table import Outcome, Row, Table

_TRAINING_FLOPS = "training FLOPs of one run"
_APART = 0.02
"""Of the axis, between models that cost the same: the interval of one would hide that of the other."""


def draw_compare(done: Conducted, table: Table) -> list[str]:
    """Curves of all models in one picture, accuracy with intervals, accuracy against training FLOPs."""
    runs = {row.model: [RunFolder(done.folder / CELLS / outcome.cell).metrics for outcome in done.of(row.model)] for row in table.rows}
    probed = any(contender.probed for contender in done.study.contenders)
    title = f"{done.study.data.name}, {done.study.budget.words}{', linear probe' if probed else ''}"
    shown = ", 95 % interval over seeds and pictures" if any(row.interval for row in table.rows) else ""
    means = np.array([row.mean for row in table.rows])
    low, high = (np.array([row.interval[i] if row.interval else row.mean for row in table.rows]) for i in (0, 1))
    bars = bar_chart(list(runs), means * 100, label=f"test accuracy (%){shown}", title=title, low=low * 100, high=high * 100, form="{:.1f}")
    caption = f"Training (dashed) and validation (solid) of each model, {len(done.study.seeds)} seeds; {title}"
    accuracy = _save(done.folder, "accuracy", bars, {"mean": means, "low": low, "high": high}, f"Test accuracy{shown}; {title}")
    if probed:
        return [accuracy]  # without labels there is no accuracy along the way, and losses of different methods cannot be compared
    paths = [_save(done.folder, "curves", training_curves(runs, title=title), _curve_numbers(runs), caption), accuracy]
    flops = [row.training_flops for row in table.rows]
    if done.study.budget.kind == "flops" or (len(flops) > 1 and len(set(flops)) == 1):
        return paths  # all models have spent the same: the axis would show how their budgets were rounded to batches
    moved = "models of equal FLOPs stand side by side" if side_by_side(flops) != flops else ""
    note = "; ".join(filter(None, ["bar: 95 % interval over seeds and pictures" if shown else "", moved]))
    figure = line_chart(points(table.rows), x=_TRAINING_FLOPS, y="test accuracy", title=title, log_x=True, percent=True, note=note)
    numbers = {"flops": flops, "accuracy": means}
    return [*paths, _save(done.folder, "flops", figure, numbers, f"Accuracy against training FLOPs; {title}")]


def points(rows: Sequence[Row]) -> list[Line]:
    """A mark for each model and an upright bar for its interval: a band needs two points."""
    positions = side_by_side([row.training_flops for row in rows])
    marks = [Line([x], [row.mean], row.model, colour=index) for index, (x, row) in enumerate(zip(positions, rows, strict=True))]
    bars = [
        Line([x] * 2, list(row.interval), "", markers=False, colour=index)
        for index, (x, row) in enumerate(zip(positions, rows, strict=True))
        if row.interval
    ]
    return marks + bars


def side_by_side(values: Sequence[float]) -> list[float]:
    """Positions on a logarithmic axis, those that nearly coincide moved apart."""
    moved, apart, least = list(values), (max(values) / min(values)) ** _APART, 0.0
    for index in sorted(range(len(values)), key=values.__getitem__):
        moved[index] = max(values[index], least)
        least = moved[index] * apart
    return moved


def draw_data(
    done: Conducted,
    outcomes: dict[str, list[Outcome]],
    fits: dict[str, PowerLaw],
    crossings: dict[str, Crossing],
    title: str,
    *,
    axis: Literal["size", "pretrained"] = "size",
    levels: Mapping[str, float] | None = None,
    name: str = "data",
) -> list[str]:
    """Test error against training (or pre-training) images: points with intervals, fitted lines with bootstrap bands, crossings named.
    `levels`: accuracies without any, a dashed line each."""
    errors: list[Line] = []
    accuracies: list[Line] = []
    numbers: dict[str, Any] = {}
    for index, (model, cells) in enumerate(outcomes.items()):
        sizes, means, low, high = _by(done, cells, lambda outcome: getattr(outcome, axis))
        has_band = _seeds(cells) > 1
        errors.append(Line(sizes, 1 - means, model, *((1 - high, 1 - low) if has_band else (None, None)), colour=index))
        accuracies.append(Line(sizes, means, model, *((low, high) if has_band else (None, None)), colour=index))
        numbers |= {f"{model} sizes": sizes, f"{model} accuracy": means, f"{model} low": low, f"{model} high": high}
        if model in fits:
            dense = np.geomspace(sizes.min(), sizes.max(), 60)
            lower, upper = fits[model].band(dense) or (None, None)
            errors.append(Line(dense, fits[model].error(dense), "", lower, upper, dashed=True, markers=False, colour=index))
            numbers |= {f"{model} fit": fits[model].error(dense), f"{model} fit sizes": dense}
        if model in (levels or {}):
            ends, level = sizes[[0, -1]], np.full(2, (levels or {})[model])
            accuracies.append(Line(ends, level, "", dashed=True, markers=False, colour=index))
            numbers |= {f"{model} from scratch": level}
    bands = _bands(outcomes.values())
    dashed = "dashed: error = a·n^-b" + (" with bootstrap band" if any(len(fit.draws) for fit in fits.values()) else "")
    note = "\n".join(["; ".join(filter(None, [bands, dashed])), *(f"{pair}: {crossing}" for pair, crossing in crossings.items())])
    what = "training pictures" if axis == "size" else "pictures of the pre-training"
    shared: dict[str, Any] = {"x": what, "title": title, "log_x": True, "percent": True}
    error = line_chart(errors, y="test error", log_y=True, note=note, **shared)
    scratch = "dashed: from scratch" if levels else ""
    accuracy = line_chart(accuracies, y="test accuracy", note="; ".join(filter(None, [bands, scratch])), **shared)
    return [
        _save(done.folder, f"error-against-{name}", error, numbers, f"Test error against {what}; {title}"),
        _save(done.folder, f"accuracy-against-{name}", accuracy, numbers, f"Test accuracy against {what}; {title}"),
    ]


def draw_compute(done: Conducted, families: dict[str, list[Outcome]], title: str) -> list[str]:
    """Accuracy against training FLOPs: a colour for each family, a line with its own marks for each model, from short to long training."""
    lines, numbers = [], {}
    for index, cells in enumerate(families.values()):
        for name in dict.fromkeys(cell.model for cell in cells):
            flops, means, low, high = _by(done, [cell for cell in cells if cell.model == name], lambda outcome: outcome.training_flops)
            lines.append(Line(flops, means, name, low, high, colour=index, marker=len(lines)))
            numbers |= {f"{name} flops": flops, f"{name} accuracy": means, f"{name} low": low, f"{name} high": high}
    note = "; ".join(filter(None, ["one line per model, from short to long training", _bands(families.values())]))
    figure = line_chart(lines, x=_TRAINING_FLOPS, y="test accuracy", title=title, log_x=True, percent=True, note=note)
    return [_save(done.folder, "accuracy-against-compute", figure, numbers, f"Accuracy against training FLOPs; {title}")]


def draw_cost(folder: Path, rows: list[dict[str, Any]], title: str) -> list[str]:
    """FLOPs split into their quadratic and linear parts, measured time and memory, against the number of tokens."""
    rows = sorted(rows, key=lambda row: row["tokens"])
    keys = [key for key in ("tokens", "flops", "quadratic", "linear", "training_ms", "predicted_ms", "memory") if key in rows[0]]
    columns = {key: np.array([row[key] for row in rows], dtype=float) for key in keys}
    tokens = columns["tokens"]

    def save(name: str, lines: dict[str, np.ndarray], y: str, caption: str) -> str:
        drawn = [Line(tokens, values, label, dashed=label.startswith("fitted")) for label, values in lines.items()]
        figure = line_chart(drawn, x="tokens", y=y, title=title, log_x=True, log_y=True)
        return _save(folder, name, figure, columns, f"{caption} against tokens; {title}")

    parts = {"all": columns["flops"], "linear in tokens": columns["linear"], "attention, tokens²": columns["quadratic"]}
    times = {"measured": columns["training_ms"]}
    if "predicted_ms" in columns:
        times["fitted: fixed + a·linear + b·quadratic"] = columns["predicted_ms"]
    return [
        save("cost-flops", parts, "forward FLOPs per picture", "FLOPs"),
        save("cost-time", times, "training ms per picture", "Training time"),
        save("cost-memory", {"measured": columns["memory"] / 2**20}, "peak memory (MiB)", "Memory"),
    ]


def _seeds(cells: Iterable[Outcome]) -> int:
    return len({cell.seed for cell in cells})


def _bands(groups: Iterable[list[Outcome]]) -> str:
    """What the bands are, where there are any: one seed has none."""
    return "band: 95 % interval over seeds and pictures" if any(_seeds(cells) > 1 for cells in groups) else ""


def _by(done: Conducted, cells: list[Outcome], key: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Positions on an axis, mean accuracies and interval ends over the cells of each."""
    positions = sorted({key(cell) for cell in cells})
    means, lows, highs = [], [], []
    for position in positions:
        own = [cell for cell in cells if key(cell) == position]
        interval = done.interval(own)
        means.append(float(np.mean([cell.accuracy for cell in own])))
        lows.append(interval.low if interval else means[-1])
        highs.append(interval.high if interval else means[-1])
    return np.array(positions, dtype=float), np.array(means), np.array(lows), np.array(highs)


def _curve_numbers(runs: dict[str, list[list[dict[str, Any]]]]) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for name, seeds in runs.items():
        for seed, lines in enumerate(seeds):
            for split in ("train", "validation"):
                chosen = [(line["epoch"], line["accuracy"], line["loss"]) for line in lines if line["split"] == split]
                numbers[f"{name} {split} {seed}"] = np.array(chosen, dtype=float).reshape(-1, 3)
    return numbers


def _save(folder: Path, name: str, figure: Any, numbers: dict[str, Any], caption: str) -> str:
    """The picture's path inside the study folder."""
    numbers = {key.replace("/", "-").replace(" ", "_"): value for key, value in numbers.items()}
    path = save_figure(figure, folder / FIGURES / name, numbers, {"command": command_line()}, caption)[0]
    return path.relative_to(folder).as_posix()
