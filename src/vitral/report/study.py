"""A study folder → one page: the conclusion, the table with intervals, the tests between pairs, the figures, the fine print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vitral.base import layout
from vitral.base.errors import DataError
from vitral.base.text import NOTHING, byte_size, duration, short, signed
from vitral.report import inline
from vitral.report.lenient_json import mapping, number, read_object
from vitral.report.render import percent, show, write_page

SUMMARY = {"kind": "kind", "data": "data", "budget": "budget for each model", "seeds": "seeds"}
SUMMARY |= {"source": "pre-trained on", "pretraining_budget": "budget of each pre-training"}
APART = {"size": "training pictures", "pretrained": "pre-training pictures", "shots": "shots", "share": "budget"}
"""What tells rows of one model apart, with its heading."""
COUNTED = {"flops": "FLOPs per picture", "quadratic": "quadratic FLOPs", "linear": "linear FLOPs"}
TIMED = {f"{what}_ms": f"{what} ms per picture" for what in ("forward", "training", "predicted")}
HEADINGS = COUNTED | TIMED
VERDICTS: dict[bool | None, str] = {True: "different", False: "not told apart", None: NOTHING}

Table = tuple[list[str], list[list[str]]]
"""Headings and rows."""


def write_study_report(study_folder: str | Path, out: str | Path | None = None) -> Path:
    """The report of a study, at `out` or in its folder as report.html; its path."""
    folder = Path(study_folder)
    if not is_study(folder):
        raise DataError(
            f"{folder} is no study: it has neither {layout.STUDY} nor {layout.RESULT}",
            "name a folder that `vitral compare` or `vitral scale` wrote",
        )
    notes: list[str] = []
    result = read_object(folder / layout.RESULT, notes, "the study is not finished, run the same command again and it goes on")
    rows = [row for row in result.get("rows") or [] if isinstance(row, dict)]
    has_means = bool(rows) and all("mean" in row for row in rows)
    pairs = [pair for pair in result.get("pairs") or [] if isinstance(pair, dict) and {"a", "b", "difference"} <= set(pair)]
    return write_page(
        "study.html",
        out or folder / layout.REPORT,
        title=f"Study: {folder.resolve().name}",
        lead="",
        notes=notes,
        conclusion=result.get("conclusion"),
        summary={label: result[key] for key, label in SUMMARY.items() if key in result},
        rows=compared(rows) if has_means else measured(rows) if rows else None,
        has_means=has_means,
        seeds=each_seed(rows) if has_means else None,
        models=mapping(result.get("models")),
        pairs=tested(pairs) if pairs else None,
        pair_test=pairs[0].get("test") if pairs else None,
        tuning=[_tuned(model, mapping(entry)) for model, entry in mapping(result.get("tuning")).items()],
        failures=[("failed for good", mapping(result.get("failed"))), ("failed once and ran again", mapping(result.get("retried")))],
        studies=mapping(result.get("studies")),
        figures=inline.of_folder(folder / layout.FIGURES, "they are drawn when the study ends"),
        declared=read_object(folder / layout.STUDY, notes),
        machine=mapping(result.get("machine")),
    )


def is_study(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (layout.STUDY, layout.RESULT))


def compared(rows: Sequence[dict[str, Any]]) -> Table:
    """Accuracy and cost of each model."""
    apart = _apart(rows)
    headings = ["model", *apart.values(), "n", "accuracy", "95 % interval", "parameters", "FLOPs per picture", "time", "memory"]
    return headings, [
        [
            str(row.get("model", NOTHING)),
            *values_of(row, apart),
            show(len(seeds) if isinstance(seeds := row.get("seeds"), list) else seeds),
            percent(row["mean"]),
            interval(row.get("interval")),
            short(number(row.get("parameters"))),
            short(number(row.get("flops"))),
            duration(number(row.get("seconds"))),
            byte_size(number(row.get("memory"))),
        ]
        for row in rows
    ]


def each_seed(rows: Sequence[dict[str, Any]]) -> Table | None:
    apart = _apart(rows)
    several = [row for row in rows if isinstance(row.get("accuracies"), list) and len(row["accuracies"]) > 1]
    shown = [[str(row["model"]), *values_of(row, apart), ", ".join(map(percent, row["accuracies"]))] for row in several]
    return (["model", *apart.values(), "accuracy of each seed"], shown) if shown else None


def measured(rows: Sequence[dict[str, Any]]) -> Table:
    """Rows without accuracies, as they are: what costs were measured at which size."""
    keys = list(dict.fromkeys(key for row in rows for key, value in row.items() if not isinstance(value, dict | list)))
    return [HEADINGS.get(key, key.replace("_", " ")) for key in keys], [[_measure(key, row.get(key)) for key in keys] for row in rows]


def _measure(key: str, value: Any) -> str:
    if number(value) is None:
        return show(value)
    if key in COUNTED:
        return short(value)
    return byte_size(value) if key == "memory" else f"{value:.3g}" if isinstance(value, float) else show(value)


def tested(pairs: Sequence[dict[str, Any]]) -> Table:
    """Who beats whom, in points of accuracy."""
    apart = {key: heading for key, heading in (("data", "data"), *APART.items()) if any(key in pair for pair in pairs)}
    return [*apart.values(), "pair", "difference", "95 % interval", "p", "p, adjusted", ""], [
        [
            *values_of(pair, apart),
            f"{pair['a']} – {pair['b']}",
            f"{signed(100 * pair['difference'])} points",
            interval(pair.get("interval"), "points"),
            *(_probability(pair.get(name), pair.get("at_most")) for name in ("p", "adjusted")),
            VERDICTS[pair.get("different")],
        ]
        for pair in pairs
    ]


def interval(ends: Any, unit: str = "%") -> str:
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        return NOTHING
    # No difference is larger than 100 points: Student's t of two seeds knows nothing of that, and its ends may lie far beyond.
    least = -1.0 if unit == "points" else 0.0
    low, high = (100 * min(max(float(end), least), 1.0) for end in ends)
    return f"{signed(low)} to {signed(high)} {unit}" if unit == "points" else f"{low:.1f} to {high:.1f} {unit}"


def _apart(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    if any("data" in row for row in rows):
        return {"data": "data"}
    return {key: heading for key, heading in APART.items() if len({row.get(key) for row in rows}) > 1}


def values_of(row: dict[str, Any], keys: Iterable[str]) -> list[str]:
    """A row of no shots is fine-tuned on all pictures."""
    told = {"share": lambda value: percent(value, 0), "shots": lambda value: show(value) if value else "fine-tuned"}
    return [told.get(key, show)(row.get(key)) for key in keys]


def _tuned(model: str, entry: dict[str, Any]) -> list[str]:
    tried = ", ".join(f"{_setting(trial, 'lr')} ({_tried(trial)})" for trial in entry.get("trials") or []) or "given"
    return [model, _setting(entry, "chosen"), tried, "at the edge of what was tried" if entry.get("at_edge") else ""]


def _setting(trial: dict[str, Any], lr: str) -> str:
    """A learning rate, and the start where several were tried."""
    return show(trial.get(lr)) + (f", start {trial['start']}" if "start" in trial else "")


def _tried(trial: dict[str, Any]) -> str:
    return f"failed: {trial['failed']}" if "failed" in trial else percent(trial.get("validation"))


def _probability(value: Any, at_most: Any) -> str:
    """Where the bootstrap ends, no more is known than a bound."""
    if number(value) is None:
        return NOTHING
    if at_most:
        return f"≤ {value:.2g}"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
