"""The same comparison on several data sets: a row for each model and a column for each data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vitral.base.errors import UsageError
from vitral.base.files import make_folder, read_json, write_json
from vitral.base.layout import STUDY
from vitral.base.manifest import vouching
from vitral.base.text import percent, table
from vitral.study.fight.conclude import LEVEL, adjust
from vitral.study.fight.conduct import check_folder
from vitral.study.fight.protocol import Budget, Study
from vitral.study.fight.result import Result, check_source, finish, folder_name

KIND = "several"


def across_data(studies: Sequence[Study], folder: Path, run: Callable[[Study, Path], Result]) -> Result:
    """Run each study in a folder of its own, or go on with it; `folder` holds the table of all at the end."""
    inner = own_folders(studies, folder)
    studied = {study.data.name: own.name for study, own in zip(studies, inner, strict=True)}
    with vouching(make_folder(folder), STUDY):  # at once, so that an unfinished comparison is known for what it is
        write_json(folder / STUDY, {"kind": KIND, "studies": studied})
    done = [run(study, own).values for study, own in zip(studies, inner, strict=True)]
    pairs = [{"data": values["data"], **pair} for values in done for pair in values["pairs"]]
    for pair, (adjusted, at_most) in zip(pairs, adjust([(pair["p"], pair["bound"]) for pair in pairs]), strict=True):
        pair |= {"adjusted": adjusted, "at_most": at_most, "different": adjusted < LEVEL}
    said = [f"{values['data']}: {values['conclusion']}" for values in done]
    values = {
        "kind": KIND,
        "data": [values["data"] for values in done],
        **{key: done[0][key] for key in ("budget", "seeds", "recipe", "machine")},
        "models": {name: note for values in done for name, note in values["models"].items()},
        "studies": studied,
        "rows": [{"data": values["data"], **row} for values in done for row in values["rows"]],
        "pairs": pairs,
        "conclusion": "\n\n".join([*said, *_together(pairs)]),
        "failed": {f"{values['data']} {cell}": why for values in done for cell, why in values["failed"].items()},
    }
    return finish(folder, lambda markdown: _table(done, markdown), values)


def own_folders(studies: Sequence[Study], folder: Path) -> list[Path]:
    """A folder in `folder` for each study, named after its data; refused before the first is trained where it holds anything else."""
    names = [folder_name(study.data.name) for study in studies]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"data set {twice} is named twice", "name each data set once")
    if (check_source(folder) / STUDY).exists() and not _holds_several(folder):
        raise UsageError(f"{folder} holds a study of one data set", "choose another --out")
    return [check_folder(study, folder / name) for study, name in zip(studies, names, strict=True)]


def _together(pairs: Sequence[dict[str, Any]]) -> list[str]:
    """Above, each data set was tested by itself; who reads this page reads all of its tests."""
    if not pairs:
        return []
    told = {
        different: [f"{p['a']} and {p['b']} on {p['data']}" for p in pairs if p["different"] == different] for different in (True, False)
    }
    parts = [f"{word}: {', '.join(told[key])}" for key, word in ((True, "told apart"), (False, "not told apart")) if told[key]]
    return [f"Counted together (Holm over all {len(pairs)} pairs of all data sets): {'; '.join(parts)}."]


def _holds_several(folder: Path) -> bool:
    study = read_json(folder / STUDY)
    return isinstance(study, dict) and study.get("kind") == KIND


def _table(done: Sequence[dict[str, Any]], markdown: bool) -> str:
    rows = [row for values in done for row in values["rows"]]
    notes = dict.fromkeys(f"{row['model']}: {row['note']}" for row in rows)
    lines = [[model, *(_accuracy(values, model) for values in done)] for model in dict.fromkeys(row["model"] for row in rows)]
    seeds = "/".join(dict.fromkeys(str(row["seeds"]) for row in rows))
    shown = "mean, 95 % interval" if any(row["interval"] for row in rows) else "mean"
    under = f"Test accuracy at {Budget.parse(done[0]['budget']).words}: {shown} over {seeds} seed{'s' * (seeds != '1')}."
    grid = table(lines, ["model", *(values["data"] for values in done)], "lr" if markdown else "l", markdown)
    return "\n\n".join([grid, under, "\n".join(f"- {note}" if markdown else note for note in notes)])


def _accuracy(values: dict[str, Any], model: str) -> str:
    row = next((row for row in values["rows"] if row["model"] == model), None)
    if row is None:
        return "failed"
    if row["interval"]:
        return f"{percent(row['mean'])} ({percent(row['interval'][0])} – {percent(row['interval'][1])})"
    return f"{percent(row['mean'])}{' (one seed)' if row['seeds'] == 1 else ''}"
