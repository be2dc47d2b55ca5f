"""What was measured: the records of published rows and studies, and what a row of them says."""

from __future__ import annotations

import atexit
import contextlib
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from missing import toml

from vitral.base import layout
from vitral.base.errors import DataError
from vitral.base.manifest import faults, read_manifest
from vitral.base.text import NOTHING, duration
from vitral.run.answers import Answers
from vitral.run.archive import opened
from vitral.run.folder import RunFolder
from vitral.study.fight.statistics import accuracy_interval, compare_pairs

HERE = Path(__file__).parent
ROOT = HERE.parent
RECORDS = HERE / "records"
"""One archive per seed of a row, and per study."""
MEASURED = HERE / "measured"
"""What single commands printed, kept by `checks.py keep`."""


@dataclass(frozen=True)
class Record:
    """One seed of a published row."""

    name: str
    path: Path
    """The folder that its archive was unpacked to."""
    manifest: dict[str, Any]
    run: RunFolder

    @property
    def seed(self) -> int:
        return self.manifest["seed"]

    @property
    def times(self) -> dict[str, Any]:
        return self.run.environment.get("times", {})

    def right(self, split: str = "test") -> np.ndarray:
        return Answers.read(self.path, split).right


def read_records(folder: Path = RECORDS) -> dict[str, list[Record]]:
    """Name of the row → its seeds. A record that is not what was written is refused."""
    by_row: dict[str, list[Record]] = {}
    for name, path in _unpacked(folder, layout.CONFIG).items():
        manifest = read_manifest(path) or {}
        by_row.setdefault(manifest["record"], []).append(Record(name, path, manifest, RunFolder(path)))
    return {name: sorted(records, key=lambda record: record.seed) for name, records in by_row.items()}


def read_studies(folder: Path = RECORDS) -> dict[str, Path]:
    """Name of the study → its folder."""
    return _unpacked(folder, layout.STUDY)


def _unpacked(folder: Path, holding: str) -> dict[str, Path]:
    """Name → the folder that the archive was unpacked to, of those with a file `holding`; each is checked against its manifest."""
    paths = {archive.stem: _unpack(archive, archive.stat().st_mtime_ns) for archive in sorted(folder.glob("*.zip"))}
    own = {name: path for name, path in paths.items() if (path / holding).is_file()}
    for name, path in own.items():
        if fault := next(faults(path), None):
            raise DataError(f"{name}.zip: {fault}", "it is damaged, or was changed by hand: restore it")
    return own


_OPENED = contextlib.ExitStack()
atexit.register(_OPENED.close)


@functools.cache
def _unpack(archive: Path, _changed: int) -> Path:
    """Unpacked once, until this process ends or the archive changes."""
    return _OPENED.enter_context(opened(archive))


def rows() -> list[dict[str, Any]]:
    return toml("rows")["row"]


def accuracy(records: list[Record], split: str = "test", mask: np.ndarray | None = None) -> str:
    """`96.91 (96.57 to 97.26)`: per cent, with the interval over seeds and pictures; one seed has none. `kept`: of these pictures alone."""
    labels = {Answers.read(record.path, split).labels.tobytes() for record in records}
    if len(labels) > 1:
        raise SystemExit(f"the seeds of {records[0].manifest['record']} were tested on other pictures: they cannot stand in one row")
    right = np.stack([record.right(split) for record in records])
    right = right if mask is None else right[:, mask]
    return mean_text(right) if len(right) > 1 else f"{mean_text(right)} (one seed)"


def mean_text(right: np.ndarray) -> str:
    """`96.91 (96.57 to 97.26)` of (seeds, images); of one seed `96.91`."""
    if len(right) == 1:
        return f"{100 * right.mean():.2f}"
    interval = accuracy_interval(right)
    return f"{100 * interval.mean:.2f} ({100 * interval.low:.2f} to {100 * interval.high:.2f})"


def probed(records: list[Record]) -> str:
    """The accuracy, and beside a linear probe's that of nearest neighbours, where every seed has both."""
    if not all((record.path / layout.answers_name(layout.NEIGHBOURS)).is_file() for record in records):
        return accuracy(records)
    return f"{accuracy(records)}; by neighbours {accuracy(records, layout.NEIGHBOURS)}"


def differences(records: dict[str, list[Record]], entries: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Record → `b − a: 0.18 (−0.09 to 0.47) points, p = 0.48 (Holm over 3)` to the one `beside` it, picture by picture, for all rows or
    claims that have one; one seed has neither interval nor p."""
    pairs = {entry["record"]: entry["beside"] for entry in entries if entry.get("record") in records and entry.get("beside") in records}
    right = {own: {name: np.stack([one.right() for one in records[name]]) for name in (own, pairs[own])} for own in pairs}
    repeated = {own: both for own, both in right.items() if min(map(len, both.values())) > 1}
    tested, texts = compare_pairs(repeated), {}
    for own, both in right.items():
        better, worse = sorted(both, key=lambda name: -both[name].mean())
        texts[own] = f"{better} − {worse}: {100 * (both[better].mean() - both[worse].mean()):.2f} points"
        for pair in tested.get(own, ()):
            texts[own] = f"{pair.ranked[0]} − {pair.ranked[1]}: {points(pair)} points, {pair.p_text} (Holm over {len(repeated)})"
    return texts


def points(pair: Any) -> str:
    low, high = sorted(100 * end * (1 if pair.difference > 0 else -1) for end in pair.interval)
    return f"{100 * abs(pair.difference):.2f} ({low:.2f} to {high:.2f})"


def machine(record: Record) -> str:
    environment = record.run.environment
    if gpu := environment.get("gpu"):
        return f"one {gpu.removeprefix('NVIDIA ')}"
    threads = environment["threads"]
    return f"{threads} CPU thread{'s' * (threads != 1)}"


def machines(records: list[Record]) -> str:
    """`one H200`; where seeds ran on other machines than the first, which: `one H200; seed 2: 1 CPU thread`."""
    seeds: dict[str, list[str]] = {}
    for record in records:
        seeds.setdefault(machine(record), []).append(str(record.seed))
    first, *others = seeds
    return "; ".join([first, *(f"seed {', '.join(seeds[other])}: {other}" for other in others)])


def timed(records: list[Record], part: str) -> str:
    """The fastest seed that ran alone; where none did, the fastest, which is an upper bound."""
    alone = [record for record in records if record.manifest.get("alone")]
    values = [value for record in alone or records if (value := record.times.get(part)) is not None and not record.times.get("resumed")]
    return NOTHING if not values else f"{'' if alone else '≤ '}{duration(min(values))}"


def compiled(records: list[Record], how: str) -> str:
    values = [record.times["compilation"] for record in records if record.times.get("compiled") == how]
    return duration(min(values)) if values else NOTHING


def learning(records: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """Those that have a curve: a probe of frozen features takes no step."""
    return {name: own for name, own in records.items() if any(line["split"] == "train" for line in own[0].run.metrics)}
