"""A data set as its source gives it, before anything is carved or resized: what every kind of source returns, and the readers in it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import DataError
from vitral.data.images.decode import Decoded, decode

UNLABELLED = ("unlabelled",)
"""The class names of images that have no labels, or whose labels must not be used."""
SMALL = 64
"""Sets whose pictures all have one size of at most this many pixels a side are small pictures, others photographs."""


class Reader:
    """Images by index; workers get a copy each, so it must be picklable.

    A source of one's own gives `__len__`, `image` and `where`. The rest has an answer for images that are no files.
    """

    pixels: np.ndarray | None = None
    """All images as one uint8 array (N, C, H, W); None: each is decoded when it is read."""

    def __len__(self) -> int:
        raise NotImplementedError

    def image(self, index: int) -> Decoded:
        """The decoded image."""
        raise NotImplementedError

    def where(self, index: int) -> str:
        """Path or description, for messages: `photos/cat/1.jpg`, `digits picture 3`."""
        raise NotImplementedError

    def key(self, _index: int, /) -> str | None:
        """Path of the file that holds it, the same in every session; None: it has no name of its own."""
        return None

    def stamp(self, _index: int, /) -> str | None:
        """Size and time of change of its file; None: changes cannot be noticed."""
        return None

    def size(self, _index: int, /) -> int | None:
        """Bytes as stored, -1 where the file is gone; None: unknown before it is decoded."""
        return None

    def content(self, index: int) -> bytes:
        """Bytes as stored, or those of the pixels where only a library can read the file."""
        return np.ascontiguousarray(self.image(index)).tobytes()


@dataclass(frozen=True)
class ImageSet:
    """Some pictures of a reader with their labels."""

    reader: Reader
    indices: np.ndarray
    labels: np.ndarray
    """(N,) int64: the class of each; or (N, K) uint8, 1 for each of several labels that it has."""

    @classmethod
    def whole(cls, reader: Reader, labels: np.ndarray) -> ImageSet:
        labels = np.asarray(labels)
        return cls(reader, np.arange(len(labels)), labels.astype(np.int64 if labels.ndim == 1 else np.uint8))

    def unlabelled(self) -> ImageSet:
        """A copy with every label set to 0, for training without labels."""
        return ImageSet(self.reader, self.indices, np.zeros(len(self.indices), np.int64))

    def select(self, positions: np.ndarray) -> ImageSet:
        return ImageSet(self.reader, self.indices[positions], self.labels[positions])

    @classmethod
    def concat(cls, parts: list[ImageSet]) -> ImageSet:
        """All pictures of several parts."""
        if len(parts) == 1:
            return parts[0]
        reader = JoinedReader([part.reader for part in parts])
        indices = np.concatenate([part.indices + start for part, start in zip(parts, reader.starts, strict=False)])
        return cls(reader, indices, np.concatenate([part.labels for part in parts]))


@dataclass(frozen=True)
class Source:
    """A data set, before anything is carved."""

    name: str
    class_names: tuple[str, ...]
    train: ImageSet
    where: str
    """Path or description of the copy that is read."""
    validation: ImageSet | None = None
    """None: carved from the training pictures."""
    test: ImageSet | None = None
    """None: carved from the training pictures."""
    sealed: ImageSet | None = None
    """Training pictures that are set aside already (see splits/sealed.py); None: not yet."""
    native_size: tuple[int, int] | None = None
    """Height and width when all pictures have the same small size; None: photographs of any size."""
    channels: int = 3
    flip: bool = True
    """Whether a mirrored picture keeps its meaning."""
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    notes: tuple[str, ...] = ()
    """What a user should know: files ignored, classes without pictures."""

    @classmethod
    def of_parts(cls, name: str, class_names: tuple[str, ...], parts: dict[str, ImageSet], where: str, notes: Iterable[str] = ()) -> Source:
        """A source of the user's own images; size and channels are measured on the first part that has some."""
        parts = {"train": ImageSet.whole(FileReader([]), np.arange(0)), **parts}
        native_size, channels = measure(next((part for part in parts.values() if len(part.labels)), parts["train"]))
        fields: dict[str, Any] = {**parts, "native_size": native_size, "channels": channels}
        return cls(name, class_names, where=where, notes=tuple(notes), **fields)


def unlabelled(source: Source) -> Source:
    """The source with every label set to 0, for learning without labels."""
    parts = {name: part.unlabelled() for name in ("train", "validation", "test", "sealed") if (part := getattr(source, name)) is not None}
    return dataclasses.replace(source, class_names=UNLABELLED, **parts)


def measure(part: ImageSet, count: int = 32) -> tuple[tuple[int, int] | None, int]:
    """(height and width if `count` spread-out images are small and of one size, else None; channels: the most that any of them has)."""
    sizes: set[tuple[int, int]] = set()
    channels: set[int] = set()
    positions = np.unique(np.linspace(0, len(part.labels) - 1, count).astype(int)) if len(part.labels) else ()
    for seen, position in enumerate(positions):
        try:
            shape = np.asarray(part.reader.image(int(part.indices[position]))).shape
        except DataError:
            continue  # named when it is its turn
        sizes.add((shape[0], shape[1]))
        channels.add(shape[2] if len(shape) == 3 else 1)
        if seen >= count // 4 and (len(sizes) > 1 or max(max(sizes)) > SMALL):
            break  # photographs: no need to decode more of them
    small = len(sizes) == 1 and max(next(iter(sizes))) <= SMALL
    return sizes.pop() if small else None, max(channels, default=3)


class ArrayReader(Reader):
    """Pixels in one uint8 array (N, C, H, W), possibly memory-mapped."""

    def __init__(self, pixels: np.ndarray, name: str) -> None:
        self.pixels: np.ndarray = pixels
        self.name = name

    def __len__(self) -> int:
        return len(self.pixels)

    def image(self, index: int) -> Decoded:
        return decode(np.ascontiguousarray(self.pixels[index].transpose(1, 2, 0)), self.where(index))

    def where(self, index: int) -> str:
        return f"{self.name} picture {index}"

    def size(self, index: int) -> int:
        return self.pixels[index].nbytes

    def content(self, index: int) -> bytes:
        return np.ascontiguousarray(self.pixels[index].transpose(1, 2, 0)).tobytes()


class ForwardingReader(Reader):
    """Images of other readers: all but `__len__` comes from the reader that has the image."""

    def origin(self, index: int) -> tuple[Reader, int]:
        """The reader that has an image, and its index there."""
        raise NotImplementedError

    def image(self, index: int) -> Decoded:
        return self._ask("image", index)

    def where(self, index: int) -> str:
        return self._ask("where", index)

    def key(self, index: int) -> str | None:
        return self._ask("key", index)

    def stamp(self, index: int) -> str | None:
        return self._ask("stamp", index)

    def size(self, index: int) -> int | None:
        return self._ask("size", index)

    def content(self, index: int) -> bytes:
        return self._ask("content", index)

    def _ask(self, what: str, index: int) -> Any:
        reader, inner = self.origin(index)
        return getattr(reader, what)(inner)


class JoinedReader(ForwardingReader):
    """Several readers in a row."""

    def __init__(self, readers: list[Reader]) -> None:
        self.readers = readers
        self.starts: np.ndarray = np.cumsum([0, *map(len, readers)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def origin(self, index: int) -> tuple[Reader, int]:
        which = int(np.searchsorted(self.starts, index, side="right")) - 1
        return self.readers[which], int(index - self.starts[which])


class FileReader(Reader):
    """One file per image."""

    def __init__(self, paths: list[Path]) -> None:
        # As bytes in one array: workers that are forked do not copy it, a list of strings they would, by reference counts.
        self.names: np.ndarray = np.array([os.fsencode(path) for path in paths], dtype=np.bytes_)

    def __len__(self) -> int:
        return len(self.names)

    def image(self, index: int) -> Decoded:
        return decode(self.where(index))

    def where(self, index: int) -> str:
        return os.fsdecode(bytes(self.names[index]))

    def key(self, index: int) -> str:
        return self.where(index)

    def stamp(self, index: int) -> str:
        return _file_stamp(self.where(index))

    def size(self, index: int) -> int:
        try:
            return os.stat(self.where(index)).st_size
        except OSError:
            return -1  # named when it is its turn

    def content(self, index: int) -> bytes:
        return _read_bytes(self.where(index))


class TableReader(Reader):
    """A Hugging Face data set's image column."""

    def __init__(self, table: Any, column: str, name: str) -> None:
        self.table = table
        self.column = column
        self.name = name

    def __len__(self) -> int:
        return len(self.table)

    def image(self, index: int) -> Decoded:
        stored = self.table[int(index)][self.column]
        if isinstance(stored, dict):  # undecoded: {"bytes", "path"}
            stored = stored["bytes"] if stored.get("bytes") else Path(stored["path"])
        return decode(stored, self.where(index))

    def where(self, index: int) -> str:
        return f"{self.name} row {index}"

    def stamp(self, _index: int) -> str:
        return str(getattr(self.table, "_fingerprint", ""))


class ShardReader(Reader):
    """Images inside tar files, read at their offsets."""

    def __init__(self, shards: list[Path], shard: np.ndarray, offset: np.ndarray, sizes: np.ndarray) -> None:
        self.shards = shards
        self.shard = shard
        self.offset = offset
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.offset)

    def image(self, index: int) -> Decoded:
        with open(self._path(index), "rb") as file:
            file.seek(int(self.offset[index]))
            return decode(file.read(int(self.sizes[index])), self.where(index))

    def where(self, index: int) -> str:
        return f"{self._path(index)} at byte {self.offset[index]}"

    def key(self, index: int) -> str:
        return self.where(index)

    def stamp(self, index: int) -> str:
        return _file_stamp(self._path(index))

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    def content(self, index: int) -> bytes:
        return _read_bytes(self._path(index), int(self.offset[index]), int(self.sizes[index]))

    def _path(self, index: int) -> Path:
        return self.shards[self.shard[index]]


def _file_stamp(path: str | Path) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "gone"  # named when it is its turn
    return f"{status.st_size} {status.st_mtime_ns}"


def _read_bytes(path: str | Path, begin: int = 0, size: int = -1) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(begin)
            return file.read(size)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})", "check the file") from error
