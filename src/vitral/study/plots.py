"""The pictures of a study, drawn from its outcomes by `draw`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.layout import CELLS, FIGURES
from vitral.draw.charts import bar_chart
from vitral.draw.curves import Line, line_chart, training_curves
from vitral.draw.provenance import command_line, save_figure
from vitral.run.folder import RunFolder
from vitral.study.conduct import Conducted
from vitral.study.statistics import Crossing, PowerLaw, t_interval
from vitral.study.table import Outcome, Row, Table


def draw_compare(done: Conducted, table: Table) -> list[str]:
    """Curves of all models in one picture, accuracy with intervals, accuracy against training FLOPs."""
    runs = {
        contender.name: [RunFolder(done.folder / CELLS / outcome.cell).metrics for outcome in done.of(contender.name)]
        for contender in done.study.contenders
        if done.of(contender.name)
    }
    title = f"{done.study.data.name}, {done.study.budget.words}"
    names = [row.model for row in table.rows]
    means = np.array([row.mean for row in table.rows])
    shown = ", 95 % interval over seeds" if any(row.interval for row in table.rows) else ""
    low, high = (np.array([row.interval[i] if row.interval else row.mean for row in table.rows]) for i in (0, 1))
    caption = f"Training (dashed) and validation (solid) of each model, {len(done.study.seeds)} seeds; {title}"
    paths = [
        _save(done.folder, "curves", training_curves(runs, title=title), _curve_numbers(runs), caption),
        _save(
            done.folder,
            "accuracy",
            bar_chart(
                names,
                means * 100,
                label=f"test accuracy (%){shown}",
                title=title,
                low=low * 100,
                high=high * 100,
                form="{:.2f}",
            ),
            {"mean": means, "low": low, "high": high},
            f"Test accuracy{shown}; {title}",
        ),
    ]
    if done.study.budget.kind == "flops":
        return paths  # all models have spent the same: the axis would show how their budgets were rounded to batches
    note = "bar: 95 % interval over seeds" if shown else ""
    figure = line_chart(
        points(table.rows), x="training FLOPs of one run", y="test accuracy", title=title, log_x=True, percent=True, note=note
    )
    paths.append(
        _save(
            done.folder,
            "flops",
            figure,
            {"flops": [row.training_flops for row in table.rows], "accuracy": means},
            f"Accuracy against training FLOPs; {title}",
        )
    )
    return paths


def points(rows: Sequence[Row]) -> list[Line]:
    """A mark for each model and an upright bar for its interval: a band needs two points."""
    marks = [Line([row.training_flops], [row.mean], row.model, colour=index) for index, row in enumerate(rows)]
    bars = [
        Line([row.training_flops] * 2, list(row.interval), "", markers=False, colour=index)
        for index, row in enumerate(rows)
        if row.interval
    ]
    return marks + bars


def draw_data(
    folder: Path, outcomes: dict[str, list[Outcome]], fits: dict[str, PowerLaw], crossings: dict[str, Crossing], title: str
) -> list[str]:
    """Test error against training pictures: points with intervals, fitted lines with bootstrap bands, crossings named."""
    lines: list[Line] = []
    numbers: dict[str, Any] = {}
    for index, (name, cells) in enumerate(outcomes.items()):
        sizes, means, low, high = _by(cells, lambda outcome: outcome.size)
        band = (1 - high, 1 - low) if _seeds(cells) > 1 else (None, None)
        lines.append(Line(sizes, 1 - means, name, *band, colour=index))
        numbers |= {f"{name} sizes": sizes, f"{name} accuracy": means, f"{name} low": low, f"{name} high": high}
        if name in fits:
            dense = np.geomspace(sizes.min(), sizes.max(), 60)
            lower, upper = fits[name].band(dense) or (None, None)
            lines.append(Line(dense, fits[name].error(dense), "", lower, upper, dashed=True, markers=False, colour=index))
            numbers |= {f"{name} fit": fits[name].error(dense), f"{name} fit sizes": dense}
    met = [f"{pair}: {crossing}" for pair, crossing in crossings.items()]
    bands = [_bands(outcomes.values())] if _bands(outcomes.values()) else []
    dashed = "dashed: error = a·n^-b" + (" with bootstrap band" if any(len(fit.draws) for fit in fits.values()) else "")
    note = "\n".join(["; ".join([*bands, dashed]), *met])
    error = line_chart(lines, x="training pictures", y="test error", title=title, log_x=True, log_y=True, percent=True, note=note)
    plain = [line for line in lines if not line.dashed]
    accuracy = [
        Line(
            line.x,
            1 - np.asarray(line.y),
            line.label,
            None if line.high is None else 1 - np.asarray(line.high),
            None if line.low is None else 1 - np.asarray(line.low),
            colour=line.colour,
        )
        for line in plain
    ]
    shown = line_chart(
        accuracy, x="training pictures", y="test accuracy", title=title, log_x=True, percent=True, note=_bands(outcomes.values())
    )
    return [
        _save(folder, "error-against-data", error, numbers, f"Test error against training pictures; {title}"),
        _save(folder, "accuracy-against-data", shown, numbers, f"Test accuracy against training pictures; {title}"),
    ]


def draw_compute(folder: Path, families: dict[str, list[Outcome]], title: str) -> list[str]:
    """Accuracy against training FLOPs: a colour for each family, a line with its own marks for each model, from short to long training."""
    lines, numbers = [], {}
    for index, cells in enumerate(families.values()):
        for name in dict.fromkeys(cell.model for cell in cells):
            flops, means, low, high = _by([cell for cell in cells if cell.model == name], lambda outcome: outcome.training_flops)
            lines.append(Line(flops, means, name, low, high, colour=index, marker=len(lines)))
            numbers |= {f"{name} flops": flops, f"{name} accuracy": means, f"{name} low": low, f"{name} high": high}
    figure = line_chart(
        lines,
        x="training FLOPs of one run",
        y="test accuracy",
        title=title,
        log_x=True,
        percent=True,
        note="; ".join(filter(None, ["one line per model, from short to long training", _bands(families.values())])),
    )
    return [_save(folder, "accuracy-against-compute", figure, numbers, f"Accuracy against training FLOPs; {title}")]


def draw_cost(folder: Path, rows: list[dict[str, Any]], title: str) -> list[str]:
    """FLOPs split into their quadratic and linear parts, measured time and memory, against the number of tokens."""
    rows = sorted(rows, key=lambda row: row["tokens"])
    tokens = np.array([row["tokens"] for row in rows], dtype=float)
    columns = {
        key: np.array([row[key] for row in rows], dtype=float)
        for key in ("flops", "quadratic", "linear", "training_ms", "predicted_ms", "memory")
        if key in rows[0]
    }
    flops = line_chart(
        [
            Line(tokens, columns["flops"], "all"),
            Line(tokens, columns["linear"], "linear in tokens"),
            Line(tokens, columns["quadratic"], "attention, tokens²"),
        ],
        x="tokens", y="forward FLOPs per picture", title=title, log_x=True, log_y=True,
    )  # fmt: skip
    time = line_chart(
        [
            Line(tokens, columns["training_ms"], "measured"),
            *(
                [Line(tokens, columns["predicted_ms"], "fitted: fixed + a·linear + b·quadratic", dashed=True)]
                if "predicted_ms" in columns
                else []
            ),
        ],
        x="tokens", y="training ms per picture", title=title, log_x=True, log_y=True,
    )  # fmt: skip
    memory = line_chart(
        [Line(tokens, columns["memory"] / 2**20, "measured")], x="tokens", y="peak memory (MiB)", title=title, log_x=True, log_y=True
    )
    numbers = {"tokens": tokens, **columns}
    return [
        _save(folder, "cost-flops", flops, numbers, f"FLOPs against tokens; {title}"),
        _save(folder, "cost-time", time, numbers, f"Training time against tokens; {title}"),
        _save(folder, "cost-memory", memory, numbers, f"Memory against tokens; {title}"),
    ]


def _seeds(cells: Iterable[Outcome]) -> int:
    return len({cell.seed for cell in cells})


def _bands(groups: Iterable[list[Outcome]]) -> str:
    """What the bands are, where there are any: one seed has none."""
    return "band: 95 % interval over seeds" if any(_seeds(cells) > 1 for cells in groups) else ""


def _by(cells: list[Outcome], key: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Places, mean accuracies and interval ends over the cells that share a place."""
    places = sorted({key(cell) for cell in cells})
    means, lows, highs = [], [], []
    for place in places:
        values = [cell.accuracy for cell in cells if key(cell) == place]
        interval = t_interval(values) if len(values) > 1 else None
        means.append(float(np.mean(values)))
        lows.append(interval.low if interval else means[-1])
        highs.append(interval.high if interval else means[-1])
    return np.array(places, dtype=float), np.array(means), np.array(lows), np.array(highs)


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
