"""What a study found: one kind of object for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.base.errors import UsageError
from vitral.base.files import check_writable, write_atomic, write_json
from vitral.base.layout import RESULT, RUNS, STUDY, TABLE
from vitral.base.manifest import vouching
from vitral.base.text import html


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


def finish(path: Path, table: Callable[[bool], str], values: dict[str, Any]) -> Result:
    """Leave table.md and, last of all, result.json in the study's folder; `table` takes whether it shall be Markdown."""
    with vouching(path, TABLE, RESULT):
        write_atomic(path / TABLE, f"{table(True).rstrip()}\n\n{values['conclusion']}\n")
        write_json(path / RESULT, values)
    return Result(table(False), values, path)


def check_source(out: str | Path, mark: str = STUDY) -> Path:
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
