"""Which files belong together, and what is in them: a manifest is written last, and names every file with its size and SHA-256.

A folder with a manifest is whole, or says what is not: a file that is missing, shorter, or has one other bit.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vitral.base.errors import DataError
from vitral.base.files import read_json, sha256_file, write_json
from vitral.base.layout import MANIFEST

CHECKSUM = "checksum"
"""Of everything else in a manifest: it vouches for itself, too."""


def describe(path: Path, length: int | None = None) -> dict[str, Any]:
    """Size and SHA-256 of a file, or of its first `length` bytes: a journal goes on growing."""
    if length is None:
        return {"size": path.stat().st_size, "sha256": sha256_file(path)}
    with open(path, "rb") as file:
        content = file.read(min(length, os.fstat(file.fileno()).st_size))  # no memory is asked for by a claim
        return {"size": length, "sha256": hashlib.sha256(content).hexdigest(), "grows": True}


def write_manifest(folder: Path, names: Iterable[str], **facts: Any) -> None:
    """Vouch for these files as they are now; `facts` are kept beside them."""
    _write(folder, {**facts, "files": {name: describe(folder / name) for name in sorted(names)}})


@contextmanager
def vouching(folder: Path, *names: str) -> Iterator[None]:
    """Write these files inside the block: nothing vouches for them until it ends, and for the others as before."""
    stored = read_manifest(folder) or {"files": {}}
    files = {name: entry for name, entry in stored["files"].items() if name not in names}
    if files != stored["files"]:
        _write(folder, {**stored, "files": files})
    yield
    _write(folder, {**stored, "files": files | {name: describe(folder / name) for name in names}})


def _write(folder: Path, content: dict[str, Any]) -> None:
    content = {name: value for name, value in content.items() if name != CHECKSUM}
    write_json(folder / MANIFEST, {**content, CHECKSUM: _checksum(content)})


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """None: nothing vouches for this folder."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    stored = read_json(path)
    files = stored.get("files") if isinstance(stored, dict) else None
    if not isinstance(files, dict) or not all(is_entry(name, entry) for name, entry in files.items()):
        raise DataError(f"{path} is no manifest", "it may be damaged")
    if CHECKSUM in stored and stored[CHECKSUM] != _checksum({name: value for name, value in stored.items() if name != CHECKSUM}):
        raise DataError(f"{path} is not what was written", "it is damaged, or was changed by hand")
    return stored


def faults(folder: Path, names: Iterable[str] | None = None) -> Iterator[str]:
    """What is not as the manifest says; `names`: look at these alone. A folder without a manifest has none."""
    stored = read_manifest(folder)
    files = stored["files"] if stored else {}
    for name in files if names is None else [name for name in names if name in files]:
        path, entry = folder / name, files[name]
        if not path.is_file():
            yield f"{name} is missing"
            continue
        size = path.stat().st_size
        if size < entry["size"] or (size > entry["size"] and not entry.get("grows")):
            yield f"{name} has {size:,} bytes, {entry['size']:,} were written"
        elif describe(path, entry["size"] if entry.get("grows") else None)["sha256"] != entry["sha256"]:
            yield f"{name} is not what was written"


def check(folder: Path, names: Iterable[str] | None = None) -> None:
    """One line when a file is not what was written."""
    if fault := next(faults(folder, names), None):
        raise DataError(
            f"{folder}: {fault}", f"it is damaged, or was changed by hand: restore it, or remove {folder / MANIFEST} to use it as it is"
        )


def is_entry(name: Any, entry: Any) -> bool:
    """Names stay inside the folder; sizes and checksums are what they must be."""
    inside = isinstance(name, str) and not Path(name).is_absolute() and ".." not in Path(name).parts
    sized = isinstance(entry, dict) and isinstance(entry.get("size"), int) and entry["size"] >= 0
    return inside and sized and isinstance(entry.get("sha256"), str)
