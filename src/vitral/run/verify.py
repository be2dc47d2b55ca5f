"""Is a folder still what was written? Every manifest under it is held against its files: of a run, its snapshots and states, a study's
cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.base import layout
from vitral.base.errors import DataError, MissingError
from vitral.base.manifest import CHECKSUM, describe, faults, is_entry, read_manifest
from vitral.run.archive import opened

PASSING = {layout.LOCK}
"""Files that come and go."""


@dataclass(frozen=True)
class _Verdict:
    path: str
    files: int
    """That something vouches for."""
    faults: list[str]
    """What is not as it was written; empty: all of it is."""
    unvouched: list[str]
    """Files that nothing vouches for: figures, reports, what others put there."""

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "whole": not self.faults}


def verify(path: str | Path) -> _Verdict:
    """Hold every file of a folder, or of a record's archive, against the manifest beside it."""
    with opened(path) as root:
        return dataclasses.replace(_verify(root), path=str(Path(path)))


def _verify(root: Path) -> _Verdict:
    if not root.is_dir():
        raise (DataError if root.exists() else MissingError)(f"{root} is no folder", "name the folder of a run, a study or a model")
    manifests = sorted(root.rglob(layout.MANIFEST), key=lambda path: (len(path.parts), path))
    vouched: set[Path] = set(manifests)
    faults: list[str] = []
    for manifest in manifests:
        prefix = "" if manifest.parent == root else f"{manifest.parent.relative_to(root)}/"
        try:
            vouched |= {manifest.parent / name for name in (read_manifest(manifest.parent) or {"files": ()})["files"]}
            faults += [prefix + fault for fault in _faults(manifest.parent)]
        except DataError as error:
            faults.append(f"{prefix}{layout.MANIFEST}: {error.message}")
    for config in (*root.rglob(layout.CONFIG), *root.rglob(layout.STUDY)):
        if not (config.parent / layout.MANIFEST).is_file():
            faults.append(f"{config.relative_to(root)}: nothing vouches for it, its {layout.MANIFEST} is missing")
    if not manifests and not faults:
        raise DataError(f"{root} holds nothing that something vouches for", "name the folder of a run, a study or a model")
    others = sorted(file for file in root.rglob("*") if file.is_file() and file not in vouched and file.name not in PASSING)
    return _Verdict(str(root), len(vouched), faults, [str(file.relative_to(root)) for file in others])


def _faults(folder: Path) -> Iterator[str]:
    stored = read_manifest(folder) or {}
    if CHECKSUM not in stored:
        yield f"{layout.MANIFEST} does not vouch for itself: it was written by an earlier version, or is damaged"
    yield from faults(folder)
    entry, journal = stored.get("journal"), folder.parent.parent / layout.METRICS
    if not isinstance(entry, dict) or not is_entry(layout.METRICS, entry):
        return
    if layout.METRICS in (read_manifest(journal.parent) or {"files": ()})["files"]:
        return  # a finished run vouches for all of it
    if not journal.is_file() or describe(journal, entry["size"])["sha256"] != entry["sha256"]:
        yield f"{layout.MANIFEST}: {layout.METRICS} is not what was written up to step {stored.get('step')}"
