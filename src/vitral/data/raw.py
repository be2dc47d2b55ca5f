"""A data set as its source gives it: what every kind of source returns, before anything is carved or resized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vitral.base.errors import DataError
from vitral.data.readers import Reader

SMALL = 64
"""Sets whose pictures all have one size of at most this many pixels a side are small pictures, others photographs."""


@dataclass(frozen=True)
class Part:
    """Some pictures of a reader with their labels."""

    reader: Reader
    indices: np.ndarray
    labels: np.ndarray

    @classmethod
    def all_of(cls, reader: Reader, labels: np.ndarray) -> Part:
        return cls(reader, np.arange(len(labels)), np.asarray(labels, np.int64))

    def some(self, positions: np.ndarray) -> Part:
        return Part(self.reader, self.indices[positions], self.labels[positions])


@dataclass(frozen=True)
class Raw:
    """A data set, before anything is carved."""

    name: str
    classes: tuple[str, ...]
    train: Part
    where: str
    """Path or description of the copy that is read."""
    validation: Part | None = None
    """None: carved from the training pictures."""
    test: Callable[[], Part] | None = None
    """Called when the test split is opened, not before; None: carved from the training pictures."""
    native_size: tuple[int, int] | None = None
    """Height and width when all pictures have the same small size; None: photographs of any size."""
    channels: int = 3
    flip: bool = True
    """Whether a mirrored picture keeps its meaning."""
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    notes: tuple[str, ...] = ()
    """What a user should know: files ignored, classes without pictures."""


def measure(part: Part, sample: int = 32) -> tuple[tuple[int, int] | None, int]:
    """(height and width if all of a spread-out sample are small and alike, else None; channels: colour when any has it)."""
    sizes: set[tuple[int, int]] = set()
    channels: set[int] = set()
    places = np.unique(np.linspace(0, len(part.labels) - 1, sample).astype(int)) if len(part.labels) else ()
    for seen, number in enumerate(places):
        try:
            shape = np.asarray(part.reader.raster(int(part.indices[number]))).shape
        except DataError:
            continue  # named when it is its turn
        sizes.add((shape[0], shape[1]))
        channels.add(shape[2] if len(shape) == 3 else 1)
        if seen >= sample // 4 and (len(sizes) > 1 or max(max(sizes)) > SMALL):
            break  # photographs: no need to decode more of them
    small = len(sizes) == 1 and max(next(iter(sizes))) <= SMALL
    return sizes.pop() if small else None, max(channels, default=3)
