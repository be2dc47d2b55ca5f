"""A split of a data set, and the seeded, class-balanced ways to divide one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image

from vitral.base.errors import DataError
from vitral.base.progress import say, track
from vitral.data.images.decode import Decoded, in_threads
from vitral.data.images.preprocess import Preprocess, viewable
from vitral.data.keys import generator
from vitral.data.sources.protocol import Reader

LABEL_JOINER = ";"
"""What stands between several labels of one picture."""


@dataclass(eq=False)
class Split:
    """Some pictures of a data set with their labels, in a fixed order."""

    name: str
    """train, validation or test."""
    reader: Reader
    indices: np.ndarray
    """Which pictures of the reader, in order."""
    labels: np.ndarray
    """(N,) int64: the class of each picture; or (N, K) uint8, 1 for each of the several labels that it has."""
    class_names: tuple[str, ...]
    preprocess: Preprocess
    flip: bool = True
    """Whether a mirrored picture keeps its meaning."""
    photographs: bool = False
    """Pictures of many sizes, larger than the model sees: cropped at random sizes instead of being shifted."""
    on_bad_image: str = "fail"
    bad: dict[int, str] = field(default_factory=dict)
    """Positions of pictures that could not be read, with the reason; filled as they are met."""
    _pixels: torch.Tensor | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.indices)

    def __getstate__(self) -> dict[str, object]:
        # Workers read pictures from the reader; the pixel cache stays with the parent.
        return {**self.__dict__, "_pixels": None}

    def where(self, position: int) -> str:
        """Path or description of one picture."""
        return self.reader.where(int(self.indices[position]))

    def image(self, position: int) -> Decoded:
        """One picture as decoded, before it is resized."""
        return self.reader.image(int(self.indices[position]))

    def picture(self, position: int) -> Image.Image:
        """One picture to look at, as it is in the data set."""
        return viewable(self.image(position))

    @property
    def multi_label(self) -> bool:
        """Whether a picture may have several labels, or none."""
        return self.labels.ndim == 2

    def label_text(self, position: int) -> str:
        """What a picture is: its class, or all its labels."""
        label = self.labels[position]
        return LABEL_JOINER.join(self.class_names[number] for number in (np.flatnonzero(label) if self.multi_label else [label]))

    def indices_of_class(self, label: int) -> np.ndarray:
        """Positions of the pictures of a class."""
        return np.flatnonzero(self.labels[:, label] if self.multi_label else self.labels == label)

    def subset(self, positions: np.ndarray) -> Split:
        """The pictures at these positions, in this order."""
        positions = np.asarray(positions)
        pixels = None if self._pixels is None else self._pixels[torch.from_numpy(positions)]
        bad = {new: self.bad[int(old)] for new, old in enumerate(positions) if int(old) in self.bad}
        return dataclasses.replace(self, indices=self.indices[positions], labels=self.labels[positions], bad=bad, _pixels=pixels)

    def with_preprocess(self, preprocess: Preprocess) -> Split:
        """The same pictures for another model; pixels that are here already stay when only the normalisation differs."""
        if preprocess == self.preprocess:
            return self
        old, new = (dataclasses.replace(each, mean=(0.0,), std=(1.0,)) for each in (self.preprocess, preprocess))
        return dataclasses.replace(self, preprocess=preprocess, _pixels=self._pixels if old == new else None)

    def balanced_subset(self, count: int, seed: int) -> Split:
        """`count` pictures, class-balanced; of one seed, each smaller subset lies inside each larger one."""
        return self.subset(balanced_positions(self.labels, count, seed))

    @property
    def bytes(self) -> int:
        """Memory that `pixels()` takes."""
        return len(self) * self.preprocess.channels * self.preprocess.image_size[0] * self.preprocess.image_size[1]

    @property
    def is_array(self) -> bool:
        """Already pixels in one array, so that no file is decoded."""
        return self.reader.pixels is not None

    def pixels(self) -> torch.Tensor:
        """All pictures as the model sees them: uint8 (N, C, H, W). Unreadable ones, when skipped, are zeros and in `bad`."""
        if self._pixels is None:
            self._pixels = self._read_all()
        return self._pixels

    def _read_all(self) -> torch.Tensor:
        size = (self.preprocess.channels, *self.preprocess.image_size)
        stored = self.reader.pixels
        if stored is not None and stored.shape[1:] == size and _untouched(self.preprocess):
            return torch.from_numpy(np.ascontiguousarray(stored[self.indices]))
        out = np.zeros((len(self), *size), np.uint8)

        def read(position: int) -> DataError | None:
            try:
                out[position] = self.preprocess.pixels(self.image(position))
            except DataError as error:
                return error
            return None

        results = in_threads(read, range(len(self)))
        for position, error in enumerate(track(results, f"Reading {self.name}", total=len(self))):
            if error is not None:
                self.skip_unreadable(position, error)
        return torch.from_numpy(out)

    def skip_unreadable(self, position: int, error: DataError) -> None:
        """Fail, or say once which picture is skipped."""
        if self.on_bad_image == "fail":
            raise DataError(error.message, f"{error.hint}; --on-bad-image skip passes over it") from error
        if position not in self.bad:
            self.bad[position] = error.message
            say(f"skipped: {error.message}")

    def counts(self) -> np.ndarray:
        """Pictures per class."""
        return self.labels.sum(axis=0, dtype=np.int64) if self.multi_label else np.bincount(self.labels, minlength=len(self.class_names))

    def class_weights(self) -> torch.Tensor:
        """Weights of the loss that make each class count alike; their mean over the pictures is 1.

        Of several labels: how much more a label that is there counts than one that is not, so that both sides weigh the same.
        """
        counts = self.counts()
        if self.multi_label:
            return torch.tensor((len(self) - counts) / np.maximum(counts, 1), dtype=torch.float32).clamp_min(1e-3)
        weights = np.where(counts > 0, len(self) / (np.count_nonzero(counts) * np.maximum(counts, 1)), 0.0)
        return torch.tensor(weights, dtype=torch.float32)

    def imbalance(self) -> float:
        """Pictures of the largest class per picture of the smallest that has any."""
        counts = self.counts()
        present = counts[counts > 0]
        return float(present.max() / present.min()) if len(present) else 1.0


def _untouched(preprocess: Preprocess) -> bool:
    """Whether a picture of the right size passes unchanged."""
    return preprocess.resize == "squash" or preprocess.crop == 1


def strata(labels: np.ndarray) -> np.ndarray:
    """One number a picture to divide by: its class, or the rarest of its several labels, so that no split goes without a rare one."""
    if labels.ndim == 1:
        return labels
    counts = np.where(labels > 0, labels.sum(axis=0, dtype=np.int64), len(labels) + 1)  # (N, K)
    return np.where(labels.any(axis=1), counts.argmin(axis=1), labels.shape[1])


def balanced_positions(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """`count` positions in order, class-balanced; of one seed, each smaller choice lies inside each larger one."""
    if not 0 < count <= len(labels):
        raise DataError(f"a subset of {count} pictures out of {len(labels)}", f"ask for 1 to {len(labels)}")
    return np.sort(balanced_order(strata(labels), seed)[:count])


def balanced_order(labels: np.ndarray, seed: int) -> np.ndarray:
    """All positions, ordered so that every prefix has each class in its share, and one of each class comes first."""
    draw = generator(seed, "balanced order")
    shuffled = draw.permutation(len(labels))
    rank = np.empty(len(labels))
    turn = draw.permutation(int(labels.max()) + 1 if len(labels) else 0)
    for label in np.unique(labels):
        members = shuffled[labels[shuffled] == label]
        rank[members] = np.arange(len(members)) / len(members)
    return np.lexsort((turn[labels], rank))


def carve(labels: np.ndarray, share: float, seed: int, purpose: str) -> tuple[np.ndarray, np.ndarray]:
    """(the rest, carved) positions: a seeded share of each class is carved out, and each class keeps at least one picture."""
    if share <= 0:
        return np.arange(len(labels)), np.arange(0)
    draw = generator(seed, purpose)
    present, counts = np.unique(labels, return_counts=True)
    # Largest remainders: the whole comes out at its share, not only each class. At least one of each class that has two.
    exact = counts * share
    taken = np.floor(exact).astype(int)
    taken[np.argsort(taken - exact, kind="stable")[: max(0, round(len(labels) * share) - taken.sum())]] += 1
    taken = np.minimum(np.maximum(taken, 1), counts - 1)
    carved = [draw.permutation(np.flatnonzero(labels == label))[:count] for label, count in zip(present, taken, strict=True)]
    out = np.sort(np.concatenate(carved)) if carved else np.arange(0)
    return np.setdiff1d(np.arange(len(labels)), out), out


def check(labels: np.ndarray, class_names: tuple[str, ...], name: str, whole: bool = True) -> None:
    """Refuse what cannot be trained on, before anything is spent; `whole`: several classes are needed too."""
    if not len(labels):
        raise DataError(f"{name} has no pictures", "check the path and the file types")
    if labels.ndim == 2:
        if whole and not labels.any():
            raise DataError(f"{name} has no picture with a label", "give some of them labels")
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= len(class_names):
        wrong = low if low < 0 else high
        raise DataError(
            f"{name} has label {wrong}, but its {len(class_names)} classes are 0 to {len(class_names) - 1}",
            "repair the labels or name all classes",
        )
    if not whole:
        return
    if len(labels) == 1:
        raise DataError(f"{name} has one picture", "training needs at least two, of different classes")
    if len(np.unique(labels)) < 2:
        raise DataError(f"{name} has pictures of one class only ({class_names[low]})", "training needs at least two classes")
