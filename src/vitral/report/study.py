"""A study folder → one page: the conclusion, the table with intervals, the tests between pairs, the figures, the fine print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vitral.base import layout
from vitral.base.errors import DataError, MissingError
from vitral.base.text import NOTHING, byte_size, duration, short, signed
from vitral.report import inline
from vitral.report.page import Section, environment, mapping, number, part, percent, read_object, section, show, write_page
from vitral.report.run import write_run_report
from vitral.run.folder import RunFolder

_SUMMARY = {"kind": "kind", "data": "data", "budget": "budget for each model", "seeds": "seeds"}
_SUMMARY |= {"source": "pre-trained on", "pretraining_budget": "budget of each pre-training"}
APART = {"size": "training pictures", "pretrained": "pre-training pictures", "shots": "shots", "share": "budget"}
"""What tells rows of one model apart, with its heading."""
_COUNTED = {"flops": "FLOPs per picture", "quadratic": "quadratic FLOPs", "linear": "linear FLOPs"}
_TIMED = {f"{what}_ms": f"{what} ms per picture" for what in ("forward", "training", "predicted")}
_HEADINGS = _COUNTED | _TIMED
_VERDICTS: dict[bool | None, str] = {True: "different", False: "not told apart", None: NOTHING}
_HINT = "they are drawn when the study ends"

_Table = tuple[list[list[str]], list[str]]
"""Rows and their headings."""


def write_study_report(study_folder: str | Path, out: str | Path | None = None) -> Path:
    """The report of a study, at `out` or in its folder as report.html; its path."""
    folder = Path(study_folder)
    if not _is_study(folder):
        raise DataError(
            f"{folder} is no study: it has neither {layout.STUDY} nor {layout.RESULT}",
            "name a folder that `vitral compare` or `vitral scale` wrote",
        )
    notes: list[str] = []
    result = read_object(folder / layout.RESULT, notes, "the study is not finished, run the same command again and it goes on")
    rows = [row for row in result.get("rows") or [] if isinstance(row, dict)]
    pairs = [pair for pair in result.get("pairs") or [] if isinstance(pair, dict) and {"a", "b", "difference"} <= set(pair)]
    studies = mapping(result.get("studies"))
    summary = {label: result[key] for key, label in _SUMMARY.items() if key in result}
    tuning = [_tuned(model, mapping(entry)) for model, entry in mapping(result.get("tuning")).items()]
    failures = [*_failures("failed for good", result.get("failed")), *_failures("failed once and ran again", result.get("retried"))]
    sections = [
        section("What it shows", *str(result.get("conclusion") or "").split("\n\n")),
        section("", part("named_values", summary)),
        _rows(rows),
        section("", part("table", list(mapping(result.get("models")).items()), ["model", "what it is"])),
        section("Pairs", part("table", *tested(pairs)), f"Test: {pairs[0]['test']}." if pairs and pairs[0].get("test") else ""),
        section("How the learning rates were chosen", part("table", tuning, ["model", "chosen", "tried (accuracy on validation)", ""])),
        section("", failures),
        _studies(studies) if studies else section("Figures", part("figures", inline.of_folder(folder / layout.FIGURES, _HINT))),
        section("As it was declared", part("named_values", read_object(folder / layout.STUDY, notes), layout.STUDY)),
        section("Environment", environment(mapping(result.get("machine")))),
    ]
    return write_page(out or folder / layout.REPORT, f"Study: {folder.resolve().name}", sections, notes=notes)


def _rows(rows: Sequence[dict[str, Any]]) -> Section:
    if not rows or not all("mean" in row for row in rows):
        return section("Table", part("table", *_measured(rows)))
    return section(
        "Table",
        part("table", *_compared(rows)),
        "Accuracy: mean over n seeds on the test split. Interval: 95 %, over seeds and test pictures; none with a single seed. "
        "Memory: the GPU's, on a CPU the whole process's, at its peak.",
        part("table", *_each_seed(rows), "each seed"),
    )


def _failures(title: str, failed: Any) -> list[Markup]:
    cells = mapping(failed)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in cells.items())
    return part("note", f"{len(cells)} cell(s) {title}: {reasons}" if cells else "")


def _studies(studies: dict[str, Any]) -> Section:
    parts = ", ".join(f"{name} in {folder}/" for name, folder in studies.items())
    return section("", f"Each data set has a study of its own, with figures: {parts}.")


def _is_study(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (layout.STUDY, layout.RESULT))


def _compared(rows: Sequence[dict[str, Any]]) -> _Table:
    """Accuracy and cost of each model."""
    apart = _apart(rows)
    headings = ["model", *apart.values(), "n", "accuracy", "95 % interval", "parameters", "FLOPs per picture", "time", "memory"]
    return [
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
    ], headings


def _each_seed(rows: Sequence[dict[str, Any]]) -> _Table:
    apart = _apart(rows)
    repeated = [row for row in rows if isinstance(row.get("accuracies"), list) and len(row["accuracies"]) > 1]
    shown = [[str(row["model"]), *values_of(row, apart), ", ".join(map(percent, row["accuracies"]))] for row in repeated]
    return shown, ["model", *apart.values(), "accuracy of each seed"]


def _measured(rows: Sequence[dict[str, Any]]) -> _Table:
    """Rows without accuracies, as they are: what costs were measured at which size."""
    keys = list(dict.fromkeys(key for row in rows for key, value in row.items() if not isinstance(value, dict | list)))
    return [[_measure(key, row.get(key)) for key in keys] for row in rows], [_HEADINGS.get(key, key.replace("_", " ")) for key in keys]


def _measure(key: str, value: Any) -> str:
    if number(value) is None:
        return show(value)
    if key in _COUNTED:
        return short(value)
    return byte_size(value) if key == "memory" else f"{value:.3g}" if isinstance(value, float) else show(value)


def tested(pairs: Sequence[dict[str, Any]]) -> _Table:
    """Who beats whom, in points of accuracy."""
    apart = {key: heading for key, heading in (("data", "data"), *APART.items()) if any(key in pair for pair in pairs)}
    return [
        [
            *values_of(pair, apart),
            f"{pair['a']} – {pair['b']}",
            f"{signed(100 * pair['difference'])} points",
            interval(pair.get("interval"), "points"),
            *(_probability(pair.get(name), pair.get("at_most")) for name in ("p", "adjusted")),
            _VERDICTS[pair.get("different")],
        ]
        for pair in pairs
    ], [*apart.values(), "pair", "difference", "95 % interval", "p", "p, adjusted", ""]


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
    shown = {"share": lambda value: percent(value, 0), "shots": lambda value: show(value) if value else "fine-tuned"}
    return [shown.get(key, show)(row.get(key)) for key in keys]


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


def write_report(folder: str | Path, out: str | Path | None = None, maps: bool = True) -> Path:
    """The page of a run or a study, whichever the folder holds; its path."""
    folder = Path(folder)
    if not folder.is_dir():
        raise (DataError if folder.exists() else MissingError)(f"{folder} is no folder", "name the folder of a run or a study")
    if _is_study(folder):
        return write_study_report(folder, out)
    if RunFolder(folder).exists:
        return write_run_report(folder, out, maps)
    raise DataError(
        f"{folder} holds neither a run nor a study", "name a folder that `vitral train`, `vitral compare` or `vitral scale` wrote"
    )
