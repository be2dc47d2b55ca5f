"""A study folder → one page: the conclusion, the table with intervals, the tests between pairs, the figures, the fine print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vitral.base.errors import DataError
from vitral.report.page import Page, duration, percent, scaled, show
from vitral.report.parts import environment_section, figures_section, optional_object

PLAN, RESULT = "study.json", "result.json"
COUNTS, BYTES = ("", "k", "M", "G", "T", "P", "E"), ("B", "KiB", "MiB", "GiB", "TiB")


def write_study_report(study_folder: str | Path, out: str | Path | None = None) -> Path:
    """The report of a study, at `out` or in its folder as report.html; its path."""
    folder = Path(study_folder)
    if not any((folder / name).is_file() for name in (PLAN, RESULT)):
        raise DataError(
            f"{folder} is no study: it has neither {PLAN} nor {RESULT}", "name a folder that `vitral compare` or `vitral scale` wrote"
        )
    page = Page(f"Study: {folder.resolve().name}")
    plan = optional_object(page, folder / PLAN, "") if (folder / PLAN).is_file() else {}
    result = optional_object(page, folder / RESULT, "the study is not finished, run the same command again and it goes on")
    _summary(page, result)
    rows = [row for row in result.get("rows") or [] if isinstance(row, dict)]
    if rows:
        page.section("Table")
        _rows(page, rows)
    if isinstance(models := result.get("models"), dict) and models:
        page.table(["model", "what it is"], [[str(name), str(note)] for name, note in models.items()])
    _pairs(page, result.get("pairs"))
    _fairness(page, result)
    if isinstance(parts := result.get("studies"), dict):
        page.text(
            "Each data set has a study of its own, with figures: " + ", ".join(f"{name} in {part}/" for name, part in parts.items()) + "."
        )
    else:
        figures_section(page, folder, "they are drawn when the study ends")
    if plan:
        page.section("The plan")
        page.facts(plan, PLAN)
    machine = result.get("machine")
    environment_section(page, machine if isinstance(machine, dict) else {})
    return page.write(out or folder / "report.html")


def _summary(page: Page, result: dict[str, Any]) -> None:
    known = {"kind": "kind", "data": "data", "budget": "budget for each model", "seeds": "seeds"}
    if sentence := result.get("conclusion"):
        page.section("What it shows")
        page.text(str(sentence))
    if facts := {label: result[key] for key, label in known.items() if key in result}:
        page.facts(facts)


def _rows(page: Page, rows: Sequence[dict[str, Any]]) -> None:
    if all("mean" in row for row in rows):
        heads = ["model", "n", "accuracy", "95 % interval", "parameters", "FLOPs per picture", "time", "memory"]
        extra = _differing(rows)
        page.table([heads[0], *extra.values(), *heads[1:]], [_row(row, extra) for row in rows])
        page.text("Accuracy: mean over n seeds on the test split. Interval: Student's t over the seeds; none with a single seed.")
        several = [row for row in rows if isinstance(row.get("accuracies"), list) and len(row["accuracies"]) > 1]
        if several:
            seeds = [[row["model"], *_apart(row, extra), _percents(row["accuracies"])] for row in several]
            page.table(["model", *extra.values(), "accuracy of each seed"], seeds, "each seed")
    else:
        heads = list(dict.fromkeys(key for row in rows for key, value in row.items() if not isinstance(value, dict | list)))
        page.table([head.replace("_", " ") for head in heads], [[show(row.get(head)) for head in heads] for row in rows])


def _differing(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """What tells rows of one model apart, with its heading."""
    if any("data" in row for row in rows):
        return {"data": "data"}
    heads = {"size": "training pictures", "share": "budget"}
    return {key: head for key, head in heads.items() if len({row.get(key) for row in rows}) > 1}


def _apart(row: dict[str, Any], keys: Iterable[str]) -> list[str]:
    return [percent(row.get(key), 0) if key == "share" else show(row.get(key)) for key in keys]


def _row(row: dict[str, Any], extra: Iterable[str]) -> list[str]:
    seeds = row.get("seeds")
    cells = [
        str(row.get("model", "–")),
        str(len(seeds) if isinstance(seeds, list) else show(seeds)),
        percent(row["mean"]),
        interval(row.get("interval")),
        scaled(row.get("parameters"), COUNTS),
        scaled(row.get("flops"), COUNTS),
        duration(row.get("seconds")),
        scaled(row.get("memory"), BYTES, 1024),
    ]
    return [cells[0], *_apart(row, extra), *cells[1:]]


def interval(ends: Any, unit: str = "%") -> str:
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        return "–"
    return f"{100 * ends[0]:.2f} to {100 * ends[1]:.2f} {unit}"


def _pairs(page: Page, pairs: Any) -> None:
    """Who beats whom, in points of accuracy."""
    chosen = [pair for pair in pairs or [] if isinstance(pair, dict) and {"a", "b", "difference"} <= set(pair)]
    if not chosen:
        return
    page.section("Pairs")
    verdict = {True: "different", False: "not told apart", None: "–"}
    extra = {key: head for key, head in (("data", "data"), ("size", "training pictures")) if any(key in pair for pair in chosen)}
    rows = [
        [
            *(show(pair.get(key)) for key in extra),
            f"{pair['a']} – {pair['b']}",
            f"{100 * pair['difference']:+.2f} points",
            interval(pair.get("interval"), "points"),
            _probability(pair.get("p")),
            _probability(pair.get("adjusted")),
            verdict[pair.get("different")],
        ]
        for pair in chosen
    ]
    page.table([*extra.values(), "pair", "difference", "95 % interval", "p", "p, adjusted", ""], rows)
    if test := chosen[0].get("test"):
        page.text(f"Test: {test}.")


def _fairness(page: Page, result: dict[str, Any]) -> None:
    """How the rates were chosen, and what went wrong on the way."""
    tuning = result.get("tuning")
    if isinstance(tuning, dict) and tuning:
        page.section("How the learning rates were chosen")
        rows = []
        for model, entry in tuning.items():
            trials = entry.get("trials") or []
            tried = ", ".join(f"{show(trial.get('lr'))} ({_tried(trial)})" for trial in trials) or "given"
            rows.append([model, show(entry.get("chosen")), tried, "at the edge of what was tried" if entry.get("at_edge") else ""])
        page.table(["model", "chosen", "tried (accuracy on validation)", ""], rows)
    for key, title in (("failed", "failed for good"), ("retried", "failed once and ran again")):
        if isinstance(result.get(key), dict) and result[key]:
            page.note(f"{len(result[key])} cell(s) {title}: " + "; ".join(f"{name}: {why}" for name, why in result[key].items()))


def _tried(trial: dict[str, Any]) -> str:
    return f"failed: {trial['failed']}" if "failed" in trial else percent(trial.get("validation"))


def _percents(values: Sequence[float]) -> str:
    return ", ".join(percent(value) for value in values)


def _probability(value: Any) -> str:
    if not isinstance(value, int | float):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
