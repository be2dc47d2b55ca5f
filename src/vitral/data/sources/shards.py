"""Webdataset shards: tar files in which `KEY.jpg` and `KEY.cls` (or `KEY.json` with a label) follow each other.

The shards are indexed once (where each picture begins, and its label) and then read by number, so that order, splits, subsets
and resuming work as with any other set, and nothing has to fit into memory.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import DataError, MissingError, VitralError
from vitral.base.files import JSON_LIMIT, open_regular, read_bounded, write_atomic
from vitral.base.progress import track
from vitral.data.images.decode import EXTENSIONS, load_array
from vitral.data.sources.folders import SPLITS
from vitral.data.sources.protocol import ImageSet, ShardReader, Source

LABELS = ("cls", "json")
_LABEL_LIMIT = 1 << 20
CLASSES = 100_000
"""Classes of shards whose names are not listed: a label must not make us ask for the memory of as many names."""
SHARDS = 1_000_000


def open_shards(pattern: str) -> Source:
    """`FOLDER`, or a pattern with `{000..099}`, `{a,b}`, `*`: shards whose names begin with val or test are those splits."""
    paths = find_shards(pattern)
    groups: dict[str, list[Path]] = {"train": [], "validation": [], "test": []}
    for path in paths:
        split = next((name for name in ("validation", "test") if path.name.lower().startswith(SPLITS[name][0])), "train")
        groups[split].append(path)
    parts = {split: _index(shards) for split, shards in groups.items() if shards}
    if "train" not in parts:
        raise DataError(f"{pattern} has no training shards", "name them train-000000.tar and so on")
    numbers = {split: part[1] for split, part in parts.items()}
    names = _class_names(Path(paths[0]).parent, max(int(labels.max(initial=-1)) for labels in numbers.values()) + 1)
    made = {split: ImageSet.whole(reader, labels) for split, (reader, labels) in parts.items()}
    return Source.of_parts(f"webdataset:{pattern}", names, made, str(Path(paths[0]).parent))


def find_shards(pattern: str) -> list[Path]:
    """The tar files that a pattern means; every one that it names must exist."""
    folder = Path(pattern).expanduser()
    if folder.is_dir():
        shards = sorted(folder.glob("*.tar"))
    else:
        shards = []
        for name in expand(str(folder)):
            matches = sorted(glob.glob(name)) if any(sign in name for sign in "*?[") else [name]
            missing = [match for match in matches if not Path(match).is_file()]
            if missing:
                raise MissingError(f"shard {missing[0]} does not exist", "check the pattern")
            shards += [Path(match) for match in matches]
    if not shards:
        raise DataError(f"{pattern} matches no tar file", "use a folder of .tar files or a pattern such as train-{000..099}.tar")
    return shards


def expand(pattern: str) -> list[str]:
    """Braces: {00..12} counts, keeping leading zeros; {a,b} lists."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if not braces:
        return [pattern]
    counted = re.fullmatch(r"(\d+)\.\.(\d+)", braces[1])
    if counted:
        width = len(counted[1])
        first, last = int(counted[1]), int(counted[2])
        if last - first >= SHARDS:
            raise DataError(f"{pattern} means {last - first + 1:,} shards", f"name at most {SHARDS:,}")
        choices = [str(number).zfill(width) for number in range(first, last + 1)]
    else:
        choices = braces[1].split(",")
    return [out for choice in choices for out in expand(pattern[: braces.start()] + choice + pattern[braces.end() :])]


def _class_names(folder: Path, count: int) -> tuple[str, ...]:
    """`classes.txt` beside the shards, one name a line; otherwise the numbers."""
    listed = folder / "classes.txt"
    if listed.is_file():
        text = read_bounded(listed, JSON_LIMIT).decode(errors="replace")
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    if count > CLASSES:
        raise DataError(f"{folder} has a label {count - 1:,}", f"number the classes from 0, or list their names in {listed}")
    return tuple(str(number) for number in range(count))


def _index(shards: list[Path]) -> tuple[ShardReader, np.ndarray]:
    shard, offset, size, labels = [], [], [], []
    for number, path in enumerate(track(shards, "Indexing shards")):
        table = _index_one(path)
        shard.append(np.full(len(table), number))
        offset.append(table[:, 0])
        size.append(table[:, 1])
        labels.append(table[:, 2])
    return ShardReader(shards, np.concatenate(shard), np.concatenate(offset), np.concatenate(size)), np.concatenate(labels)


def _index_one(path: Path) -> np.ndarray:
    """Rows of offset, size, label; stored next to the shard, and made anew when the shard has changed."""
    status = path.stat()
    stamp = hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:16]
    stored = path.with_name(f".{path.name}.{stamp}.index.npy")
    if stored.is_file():
        with contextlib.suppress(VitralError), open_regular(stored) as file:  # damaged: made anew
            table = load_array(file, str(stored))
            if table.dtype == np.int64 and table.shape[1:] == (3,) and _fits(table, status.st_size):
                return table
    table = _scan(path)
    buffer = io.BytesIO()
    np.save(buffer, table)
    with contextlib.suppress(VitralError):  # shards on a read-only disk are indexed each time
        write_atomic(stored, buffer.getvalue())
    return table


def _fits(table: np.ndarray, size: int) -> bool:
    """Every picture lies inside its shard."""
    return bool((table >= 0).all() and (table[:, 0] <= size - table[:, 1]).all())


def _scan(path: Path) -> np.ndarray:
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                key, _, ending = member.name.rpartition("/")[2].partition(".")
                key = f"{member.name.rpartition('/')[0]}/{key}"
                if "." + ending.lower() in EXTENSIONS:
                    images[key] = member.offset_data, member.size
                elif ending.lower() in LABELS and member.size <= _LABEL_LIMIT:
                    content = archive.extractfile(member)
                    labels[key] = _label(content.read() if content else b"", f"{path}: {member.name}")
    except (tarfile.TarError, OSError) as error:
        raise DataError(f"{path} is not a readable tar file ({error})", "fetch the shard again") from error
    without = [key for key in images if key not in labels]
    if without:
        raise DataError(f"{path}: {without[0].lstrip('/')} has a picture but no label", "add a .cls file with its number")
    table = np.asarray([(*extent, labels[key]) for key, extent in images.items()], np.int64).reshape(-1, 3)
    if not _fits(table, path.stat().st_size):
        raise DataError(f"{path} ends before its last picture", "fetch the shard again")
    return table


def _label(content: bytes, name: str) -> int:
    try:
        value: Any = json.loads(content)
        if isinstance(value, dict):
            value = next(value[key] for key in ("label", "cls", "class") if key in value)
        label = int(value)
        if not 0 <= label < 2**31:
            raise ValueError(label)
        return label
    except (ValueError, StopIteration, TypeError, RecursionError, OverflowError) as error:
        raise DataError(f"{name} holds no label", "write the number of the class, from 0") from error
