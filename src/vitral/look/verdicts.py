"""What an audit said of a model's maps, where one was made: shown beside each map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitral.base import layout
from vitral.base.errors import DataError
from vitral.base.files import read_json
from vitral.look.describe import digest
from vitral.model.classifier import Classifier

AUDITS = Path("audits")
"""Where audits of models go that have no folder of their own."""


def audit_folder(model: str) -> Path:
    """Where the audit of a model goes: into its folder, or to audits/NAME."""
    path = Path(model)
    return path / layout.AUDIT if path.is_dir() else AUDITS / (path.stem if path.exists() else model.replace(":", "-").replace("/", "-"))


def read_verdicts(model: Classifier, folder: str | Path) -> dict[str, str]:
    """Method → `use`, `with care: …`, `do not use: …`, of an audit of these very weights; empty where there is none."""
    path = Path(folder) / layout.VERDICTS
    try:
        stored: Any = read_json(path) if path.is_file() else {}
    except DataError:
        stored = {}
    if not isinstance(stored, dict) or not isinstance(stored.get("rows"), list) or stored.get("model") != digest(model):
        return {}
    rows = [row for row in stored["rows"] if isinstance(row, dict) and row.get("verdict") != "reference"]
    return {str(row.get("method")): f"{row.get('verdict')}: {row.get('reason')}" for row in rows}
