"""The same comparison on several data sets: report R4's table, a row for each model and a column for each data set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.base.errors import UsageError
from vitral.base.files import read_json, write_atomic, write_json
from vitral.study.cells import Budget, Study
from vitral.study.compare import Comparison, compare
from vitral.study.conduct import PLAN, RESULT, Pool
from vitral.study.pool import Work
from vitral.study.table import Row
from vitral.study.train_cell import run_cell

KIND = "several"


@dataclass(frozen=True)
class Several:
    """Finished comparisons, one for each data set."""

    folder: Path
    comparisons: tuple[Comparison, ...]
    result: dict[str, Any]
    """As result.json has it."""

    def text(self) -> str:
        return _text(self.comparisons)


def folder_name(data: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", data).strip("-")


def compare_several(studies: Sequence[Study], out: str | Path, pool: Pool | None = None, work: Work = run_cell) -> Several:
    """Run each study in a folder of `out` named after its data, or go on with it; `out` holds the table of all at the end."""
    folder = Path(out)
    names = [folder_name(study.data.name) for study in studies]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"data set {twice} is named twice", "name each data set once")
    if (folder / PLAN).exists() and not _holds_several(folder):
        raise UsageError(f"{folder} holds a study of one data set", "choose another --out")
    studied = {study.data.name: name for study, name in zip(studies, names, strict=True)}
    write_json(folder / PLAN, {"kind": KIND, "studies": studied})  # so that an unfinished comparison is known for what it is
    done = tuple(compare(study, folder / name, pool, work) for study, name in zip(studies, names, strict=True))
    results = [comparison.result for comparison in done]
    result = {
        "kind": KIND,
        "data": [result["data"] for result in results],
        "budget": results[0]["budget"],
        "seeds": results[0]["seeds"],
        "recipe": results[0]["recipe"],
        "models": {name: note for result in results for name, note in result["models"].items()},
        "studies": studied,
        "rows": [{"data": result["data"], **row} for result in results for row in result["rows"]],
        "pairs": [{"data": result["data"], **pair} for result in results for pair in result["pairs"]],
        "conclusion": " ".join(_conclusions(done)),
        "failed": {f"{result['data']} {cell}": why for result in results for cell, why in result["failed"].items()},
        "machine": results[0]["machine"],
    }
    write_atomic(folder / "table.md", _text(done, markdown=True))
    write_json(folder / RESULT, result)
    return Several(folder, done, result)


def _holds_several(folder: Path) -> bool:
    plan = read_json(folder / PLAN)
    return isinstance(plan, dict) and plan.get("kind") == KIND


def _conclusions(done: Sequence[Comparison]) -> list[str]:
    said = [f"{comparison.result['data']}: {comparison.conclusion}" for comparison in done]
    return [*said, "Each data set is tested by itself: Holm counts its pairs, not those of the others."]


def _text(done: Sequence[Comparison], markdown: bool = False) -> str:
    models = list(dict.fromkeys(row.model for comparison in done for row in comparison.table.rows))
    notes = list(dict.fromkeys(note for comparison in done for note in comparison.table.notes))
    heads = ["model", *(comparison.result["data"] for comparison in done)]
    lines = [heads, *([model, *(_cell(comparison, model) for comparison in done)] for model in models)]
    seeds = "/".join(dict.fromkeys(str(row.seeds) for comparison in done for row in comparison.table.rows))
    shown = "mean, 95 % interval" if any(row.interval for comparison in done for row in comparison.table.rows) else "mean"
    under = f"Test accuracy at {Budget.parse(done[0].result['budget']).words}: {shown} over {seeds} seed{'s' * (seeds != '1')}."
    if markdown:
        rule = ["---", *(["---:"] * len(done))]
        grid = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in [heads, rule, *lines[1:]]]
        parts = ["\n".join(grid), under, "\n".join(f"- {note}" for note in notes)]
    else:
        widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
        rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
        parts = ["\n".join([rows[0], "  ".join("─" * width for width in widths), *rows[1:]]), under, "\n".join(notes)]
    return "\n\n".join([*parts, *_conclusions(done)]) + "\n"


def _cell(comparison: Comparison, model: str) -> str:
    row: Row | None = next((row for row in comparison.table.rows if row.model == model), None)
    if row is None:
        return "failed"
    if row.interval:
        return f"{row.mean:.2%} ({row.interval[0]:.2%} – {row.interval[1]:.2%})"
    return f"{row.mean:.2%}{' (one seed)' if row.seeds == 1 else ''}"
