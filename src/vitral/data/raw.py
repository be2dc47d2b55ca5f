"""A data set as its source gives it: what every kind of source returns, before anything is carved or resized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vitral.data.readers import Reader


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
