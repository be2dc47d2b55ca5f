"""Where a split's pictures are: an array, files, a Hugging Face table or tar shards, all read by number."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vitral.data.decode import Raster, decode


class Reader(Protocol):
    """Pictures by number; workers get a copy each, so it must be picklable."""

    def __len__(self) -> int: ...

    def raster(self, number: int) -> Raster:
        """The decoded picture."""
        ...

    def where(self, number: int) -> str:
        """What an error calls it."""
        ...


class ArrayReader:
    """Pixels in one uint8 array (N, C, H, W), possibly memory-mapped."""

    def __init__(self, pixels: np.ndarray, name: str) -> None:
        self.pixels, self.name = pixels, name

    def __len__(self) -> int:
        return len(self.pixels)

    def raster(self, number: int) -> Raster:
        return decode(np.ascontiguousarray(self.pixels[number].transpose(1, 2, 0)), self.where(number))

    def where(self, number: int) -> str:
        return f"{self.name} picture {number}"


class FileReader:
    """One file per picture."""

    def __init__(self, paths: list[Path]) -> None:
        # As bytes in one array: workers that are forked do not copy it, a list of strings they would, by reference counts.
        self.names = np.array([os.fsencode(path) for path in paths], dtype=np.bytes_)

    def __len__(self) -> int:
        return len(self.names)

    def raster(self, number: int) -> Raster:
        return decode(self.where(number))

    def where(self, number: int) -> str:
        return os.fsdecode(bytes(self.names[number]))


class TableReader:
    """A Hugging Face data set's picture column."""

    def __init__(self, table: Any, column: str, name: str) -> None:
        self.table, self.column, self.name = table, column, name

    def __len__(self) -> int:
        return len(self.table)

    def raster(self, number: int) -> Raster:
        cell = self.table[int(number)][self.column]
        if isinstance(cell, dict):  # undecoded: {"bytes", "path"}
            cell = cell["bytes"] if cell.get("bytes") else Path(cell["path"])
        return decode(cell, self.where(number))

    def where(self, number: int) -> str:
        return f"{self.name} row {number}"


class ShardReader:
    """Pictures inside tar files, read at their offsets."""

    def __init__(self, shards: list[Path], shard: np.ndarray, offset: np.ndarray, size: np.ndarray) -> None:
        self.shards, self.shard, self.offset, self.size = shards, shard, offset, size

    def __len__(self) -> int:
        return len(self.offset)

    def raster(self, number: int) -> Raster:
        with open(self.shards[self.shard[number]], "rb") as file:
            file.seek(int(self.offset[number]))
            return decode(file.read(int(self.size[number])), self.where(number))

    def where(self, number: int) -> str:
        return f"{self.shards[self.shard[number]]} at byte {self.offset[number]}"
