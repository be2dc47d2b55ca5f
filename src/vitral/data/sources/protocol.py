"""A data set as its source gives it, before anything is carved or resized: what every kind of source returns, and the readers in it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vitral.base.errors import DataError
from vitral.data.images.decode import Decoded, decode

UNLABELLED = ("unlabelled",)
"""The class names of pictures whose labels are not to be known."""
SMALL = 64
"""Sets whose pictures all have one size of at most this many pixels a side are small pictures, others photographs."""


class Reader(Protocol):
    """Pictures by number; workers get a copy each, so it must be picklable."""

    def __len__(self) -> int: ...

    def image(self, number: int) -> Decoded:
        """The decoded picture."""
        ...

    def where(self, number: int) -> str:
        """What an error calls it."""
        ...


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
        """The same pictures, all of one class; their labels are not looked at."""
        return ImageSet(self.reader, self.indices, np.zeros(len(self.indices), np.int64))

    def some(self, positions: np.ndarray) -> ImageSet:
        return ImageSet(self.reader, self.indices[positions], self.labels[positions])

    @classmethod
    def joined(cls, parts: list[ImageSet]) -> ImageSet:
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
    test: Callable[[], ImageSet] | None = None
    """Called when the test split is opened, not before; None: carved from the training pictures."""
    sealed: ImageSet | None = None
    """Training pictures that are set aside already (see data/sealed.py); None: not yet."""
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
        test = parts.get("test")
        native_size, channels = measure(next(part for part in parts.values() if len(part.labels)))
        return cls(
            name,
            class_names,
            parts.get("train", ImageSet.whole(FileReader([]), np.arange(0))),
            where,
            validation=parts.get("validation"),
            test=(lambda: test) if test is not None else None,
            native_size=native_size,
            channels=channels,
            notes=tuple(notes),
        )


def unlabelled(source: Source) -> Source:
    """The same pictures without labels, for learning that must not see any."""
    test = source.test
    return dataclasses.replace(
        source,
        class_names=UNLABELLED,
        train=source.train.unlabelled(),
        validation=source.validation.unlabelled() if source.validation is not None else None,
        test=(lambda: test().unlabelled()) if test is not None else None,
        sealed=source.sealed.unlabelled() if source.sealed is not None else None,
    )


def measure(part: ImageSet, count: int = 32) -> tuple[tuple[int, int] | None, int]:
    """(height and width if all of `count` spread-out ones are small and alike, else None; channels: colour when any has it)."""
    sizes: set[tuple[int, int]] = set()
    channels: set[int] = set()
    places = np.unique(np.linspace(0, len(part.labels) - 1, count).astype(int)) if len(part.labels) else ()
    for seen, number in enumerate(places):
        try:
            shape = np.asarray(part.reader.image(int(part.indices[number]))).shape
        except DataError:
            continue  # named when it is its turn
        sizes.add((shape[0], shape[1]))
        channels.add(shape[2] if len(shape) == 3 else 1)
        if seen >= count // 4 and (len(sizes) > 1 or max(max(sizes)) > SMALL):
            break  # photographs: no need to decode more of them
    small = len(sizes) == 1 and max(next(iter(sizes))) <= SMALL
    return sizes.pop() if small else None, max(channels, default=3)


class ArrayReader:
    """Pixels in one uint8 array (N, C, H, W), possibly memory-mapped."""

    def __init__(self, pixels: np.ndarray, name: str) -> None:
        self.pixels = pixels
        self.name = name

    def __len__(self) -> int:
        return len(self.pixels)

    def image(self, number: int) -> Decoded:
        return decode(np.ascontiguousarray(self.pixels[number].transpose(1, 2, 0)), self.where(number))

    def where(self, number: int) -> str:
        return f"{self.name} picture {number}"


class JoinedReader:
    """Several readers in a row."""

    def __init__(self, readers: list[Reader]) -> None:
        self.readers = readers
        self.starts: np.ndarray = np.cumsum([0, *map(len, readers)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def image(self, number: int) -> Decoded:
        reader, inner = self.find(number)
        return reader.image(inner)

    def where(self, number: int) -> str:
        reader, inner = self.find(number)
        return reader.where(inner)

    def find(self, number: int) -> tuple[Reader, int]:
        """The reader that has it, and its number there."""
        which = int(np.searchsorted(self.starts, number, side="right")) - 1
        return self.readers[which], int(number - self.starts[which])


class FileReader:
    """One file per picture."""

    def __init__(self, paths: list[Path]) -> None:
        # As bytes in one array: workers that are forked do not copy it, a list of strings they would, by reference counts.
        self.names: np.ndarray = np.array([os.fsencode(path) for path in paths], dtype=np.bytes_)

    def __len__(self) -> int:
        return len(self.names)

    def image(self, number: int) -> Decoded:
        return decode(self.where(number))

    def where(self, number: int) -> str:
        return os.fsdecode(bytes(self.names[number]))


class TableReader:
    """A Hugging Face data set's picture column."""

    def __init__(self, table: Any, column: str, name: str) -> None:
        self.table = table
        self.column = column
        self.name = name

    def __len__(self) -> int:
        return len(self.table)

    def image(self, number: int) -> Decoded:
        stored = self.table[int(number)][self.column]
        if isinstance(stored, dict):  # undecoded: {"bytes", "path"}
            stored = stored["bytes"] if stored.get("bytes") else Path(stored["path"])
        return decode(stored, self.where(number))

    def where(self, number: int) -> str:
        return f"{self.name} row {number}"


class ShardReader:
    """Pictures inside tar files, read at their offsets."""

    def __init__(self, shards: list[Path], shard: np.ndarray, offset: np.ndarray, size: np.ndarray) -> None:
        self.shards = shards
        self.shard = shard
        self.offset = offset
        self.size = size

    def __len__(self) -> int:
        return len(self.offset)

    def image(self, number: int) -> Decoded:
        with open(self.shards[self.shard[number]], "rb") as file:
            file.seek(int(self.offset[number]))
            return decode(file.read(int(self.size[number])), self.where(number))

    def where(self, number: int) -> str:
        return f"{self.shards[self.shard[number]]} at byte {self.offset[number]}"
