"""What a folder's files hold. Anything may be missing or damaged: then the page says so, and shows the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitral.base.errors import DataError
from vitral.base.files import read_json


def read_object(path: Path, notes: list[str], missing: str = "") -> dict[str, Any]:
    """The JSON object in a file, or an empty one and a note; `missing`: what it means that there is no such file, where it matters."""
    if not path.exists():
        notes += [f"{path.name} is missing: {missing}"] if missing else []
        return {}
    try:
        stored = read_json(path)
    except DataError as error:
        notes.append(str(error))
        return {}
    if not isinstance(stored, dict):
        notes.append(f"{path} holds no JSON object: it may be damaged, write it again")
    return mapping(stored)


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None
