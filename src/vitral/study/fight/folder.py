"""The folder of a study: study.json says what is studied, result.json and table.md what came out of it.

A folder holds one study. The same call resumes it, another one is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.base.errors import ConfigError, DataError, UsageError
from vitral.base.files import check_writable, make_folder, read_json, write_atomic, write_json
from vitral.base.layout import RESULT, RUNS, STUDY, TABLE
from vitral.base.manifest import vouching
from vitral.base.text import html
from vitral.config import RunConfig, from_dict, to_dict
from vitral.study.fight.experiment import ALWAYS, DATA_SETTINGS, TEMPLATE, Experiment

_NAMED = 4
"""Differences between two studies that are named; more would not be read."""


@dataclass(frozen=True, repr=False)
class Result:
    """A finished study. Printed, it shows its table and its conclusion."""

    table: str
    """As text."""
    values: dict[str, Any]
    """Everything, as result.json and `--json` have it; accuracies are fractions."""
    path: Path | None = None
    """The study's folder; None: it leaves none."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table as plain values, one dict per row."""
        return self.values["rows"]

    @property
    def conclusion(self) -> str:
        """What can be concluded, and what cannot."""
        return self.values["conclusion"]

    @property
    def failed(self) -> dict[str, str]:
        """Cells that are missing, and why."""
        return self.values.get("failed", {})

    def __repr__(self) -> str:
        return "\n\n".join(part for part in (self.table.rstrip(), self.conclusion, str(self.path or "")) if part)

    def _repr_html_(self) -> str:
        return html(repr(self))


def declare(study: Experiment, out: str | Path) -> Path:
    """The study's folder; its study.json says what is studied from now on."""
    folder = check_folder(study, out)
    if not (folder / STUDY).exists():
        with vouching(make_folder(folder), STUDY):
            write_json(folder / STUDY, study.to_dict())
    return folder


def check_folder(study: Experiment, out: str | Path) -> Path:
    """Refuse a folder that holds anything but this study; nothing is written."""
    folder = check_study_folder(out)
    if (folder / STUDY).exists():
        _check_same(study, read_json(folder / STUDY), str(folder))
    return folder


def finish(path: Path, table: Callable[[bool], str], values: dict[str, Any]) -> Result:
    """Leave table.md and, last of all, result.json in the study's folder; `table` takes whether it shall be Markdown."""
    with vouching(path, TABLE, RESULT):
        write_atomic(path / TABLE, f"{table(True).rstrip()}\n\n{values['conclusion']}\n")
        write_json(path / RESULT, values)
    return Result(table(False), values, path)


def check_study_folder(out: str | Path, mark: str = STUDY) -> Path:
    """Refuse what cannot be written in, and a folder that holds things but not the file that marks such a study: they are somebody's."""
    folder = Path(out)
    check_writable(folder)
    if folder.is_dir() and not (folder / mark).exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty and holds no such study", "choose another --out")
    return folder


def study_folder(out: str | Path | None, verb: str, *data: str) -> Path:
    """Where a study goes: `out`, else runs/VERB-DATA; refused before data is read where nothing can be written."""
    folder = Path(out) if out else RUNS / "-".join([verb, *map(folder_name, data)])
    check_writable(folder)
    return folder


def folder_name(data: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", data).strip("-")


def _check_same(study: Experiment, stored: Any, folder: str) -> None:
    """A folder holds one study: resuming another one would mix their cells. `stored`: what the folder's study.json contains."""
    if not isinstance(stored, dict) or not {"kind", "data", "contenders"} & set(stored):
        raise DataError(f"{folder} holds a damaged {STUDY}", "choose another --out")
    if different := _differences(json.loads(json.dumps(study.to_dict())), _current(stored)):
        more = f"; {len(different) - _NAMED} more" if len(different) > _NAMED else ""
        raise UsageError(
            f"{folder} holds another study (different: {'; '.join(different[:_NAMED])}{more})",
            "choose another --out, or the same settings to go on",
        )


def _current(stored: dict[str, Any]) -> dict[str, Any]:
    """A study.json with today's keys. Version 0.2 wrote the data and the training that all share, and what a contender changed in them."""
    contenders = [contender for contender in stored.get("contenders") or [] if isinstance(contender, dict)]
    rest = {name: value for name, value in stored.items() if name not in ("data", "train")}
    return {**rest, "contenders": [_current_contender(contender, stored) for contender in contenders]}


def _current_contender(contender: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    if "settings" in contender:
        settings, untrained = contender["settings"], {"epochs": 0.0} if contender.get("untrained") else {}
        of_data = {name: value for name, value in settings.items() if name in DATA_SETTINGS}
        of_train = {name: value for name, value in settings.items() if name not in DATA_SETTINGS} | untrained
        before = contender.get("begun") or {}
        run = {name: contender.get(name) for name in ("model", "weights", "pretrain")} | {
            "name": TEMPLATE,
            "data": {**stored.get("data", {}), **of_data},
            "train": {**stored.get("train", {}), **ALWAYS, **of_train, "tune": contender.get("tune")},
        }
        sources = [{"images": int(key.split()[0]), "seed": int(key.split()[1]), "folder": path} for key, path in before.items()]
        gone = ("model", "weights", "pretrain", "tune", "family", "settings", "untrained", "begun")
        contender = {name: value for name, value in contender.items() if name not in gone} | {"run": run, "pretrained_from": sources}
    try:  # settings that have come since have their defaults
        run = json.loads(json.dumps(to_dict(from_dict(RunConfig, contender["run"], "run"))))
    except (ConfigError, KeyError):
        return contender
    return {**contender, "run": run}


def _differences(study: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    """`tuning_share 0.5, now 0.25` for each value that is not the same, in contenders too; what is in all of them is named once."""
    texts = list(_changes({**study, "contenders": None}, {**stored, "contenders": None}))
    now, before = study["contenders"], {contender.get("name"): contender for contender in stored["contenders"]}
    if [contender["name"] for contender in now] != list(before):
        texts.append(f"contenders {_short(stored['contenders'])}, now {_short(now)}")
    common = {index: list(_changes(own, before[own["name"]])) for index, own in enumerate(now) if own["name"] in before}
    for index, own in common.items():
        for text in own:
            in_all = text.startswith("run.") and all(text in other for other in common.values())
            texts.append(text.removeprefix("run.") if in_all else f"contenders[{index}].{text}")
    return list(dict.fromkeys(texts))


def _changes(new: Any, old: Any, path: str = "") -> Iterator[str]:
    if isinstance(new, dict) and isinstance(old, dict):
        for key in sorted({*old, *new}):
            yield from _changes(new.get(key), old.get(key), f"{path}.{key}" if path else key)
    elif new != old:
        yield f"{path} {_short(old)}, now {_short(new)}"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(str(item["name"]) if isinstance(item, dict) and "name" in item else _short(item) for item in value) or "none"
    text = f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
