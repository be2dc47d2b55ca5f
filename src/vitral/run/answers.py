"""What a model answered, image by image: test.npz, and test.webp with the few small pictures that a report shows (or sealed.npz …).

The small pictures are kept beside the answers so that a report never opens the data again.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from vitral.base.errors import DataError
from vitral.base.files import read_bounded, write_atomic
from vitral.base.layout import answers_name, pictures_name
from vitral.base.text import percent
from vitral.data.images.decode import decode
from vitral.data.images.preprocess import viewable
from vitral.weights.read import check_archive

_ALL = 10
"""Up to this many classes every probability is kept, of more the five largest."""
FEW = 12
"""Pictures of one kind that a report shows."""
CLASSES = 20
"""Classes whose pictures it shows, the worst first."""
TILE, COLUMNS = 96, 12
"""Pixels of a small picture's side; small pictures in a row of the file."""
LIMIT = 8 << 20
"""Bytes of that file."""


def stored_classes(classes: int) -> int:
    """How many probabilities of an image are kept."""
    return classes if classes <= _ALL else 5


@dataclass(frozen=True)
class Answers:
    predictions: np.ndarray
    """(N,) answers, in the order of the split."""
    labels: np.ndarray
    paths: tuple[str, ...] = ()
    """Where each image is, as errors call it; empty: not kept."""
    top: np.ndarray | None = None
    """(N, k) classes, most probable first."""
    probabilities: np.ndarray | None = None
    """(N, k) of these."""
    pictures: dict[int, Image.Image] | None = None
    """Small ones of the images in `notable` and `by_class`, by position."""

    @property
    def right(self) -> np.ndarray:
        """(N,) whether each image is answered rightly."""
        return agree(self.predictions, self.labels)

    def describe(self, position: int, name: Callable[[int], str]) -> str:
        """An image in a line: what it is, what it was taken for, how sure the model was."""
        truth, answer = name(int(self.labels[position])), name(int(self.predictions[position]))
        return f"{truth if truth == answer else f'{truth}, taken for {answer}'}, {percent(self.confidence[position])}"

    def disputed(self, position: int) -> list[int]:
        """The classes to ask about an image: its answer, and the truth where that is another."""
        return list(dict.fromkeys([int(self.predictions[position]), int(self.labels[position])]))

    def _sound(self) -> bool:
        """Whole numbers, one of each kind for each image."""
        count = len(self.labels)
        beside = [value for value in (self.top, self.probabilities) if value is not None]
        whole = all(value.shape == (count,) and value.dtype.kind in "iu" for value in (self.predictions, self.labels))
        return whole and all(value.ndim == 2 and len(value) == count for value in beside) and len(self.paths) in (0, count)

    @property
    def confidence(self) -> np.ndarray:
        return np.full(len(self.labels), np.nan) if self.probabilities is None else self.probabilities[:, 0].astype(np.float64)

    def errors(self) -> np.ndarray:
        """Positions of all of them, the most confident first."""
        order = np.argsort(-self.confidence, kind="stable")
        return order[~self.right[order]]

    def notable(self) -> dict[str, np.ndarray]:
        """Positions of what teaches most: the errors it was surest of, and the right answers it was least sure of."""
        order = np.argsort(-self.confidence, kind="stable")
        return {"most confident errors": self.errors()[:FEW], "least confident right answers": order[self.right[order]][::-1][:FEW]}

    def by_class(self) -> dict[int, np.ndarray]:
        """For the worst classes first: the errors it was surest of, then the least and the most confident right answer."""
        right = self.right
        present = np.unique(self.labels)
        order = np.argsort(-self.confidence, kind="stable")
        accuracy = [right[self.labels == label].mean() for label in present]
        out: dict[int, np.ndarray] = {}
        for label in present[np.argsort(accuracy, kind="stable")][:CLASSES]:
            own = order[self.labels[order] == label]
            wrong, good = own[~right[own]], own[right[own]]
            out[int(label)] = np.concatenate([wrong[:3], good[-1:], good[:1] if len(good) > 1 else good[:0]])
        return out

    def shown(self) -> np.ndarray:
        """Positions of all images that a report shows."""
        return np.unique(np.concatenate([np.arange(0), *self.notable().values(), *self.by_class().values()]).astype(np.int64))

    def files(self, split: str = "test") -> tuple[str, ...]:
        """What `write` writes."""
        return (answers_name(split), pictures_name(split)) if self.pictures else (answers_name(split),)

    def with_pictures(self, picture: Callable[[int], Image.Image]) -> Answers:
        """With small pictures of what a report shows; `picture` opens the image at a position."""
        return dataclasses.replace(self, pictures={int(position): small(picture(int(position))) for position in self.shown()})

    def write(self, folder: Path, split: str = "test") -> None:
        values: dict[str, Any] = {"predictions": self.predictions, "labels": self.labels}
        if self.paths:
            values["paths"] = np.array(self.paths)
        if self.top is not None:
            values["top"] = self.top.astype(np.int32)
        if self.probabilities is not None:
            values["probabilities"] = self.probabilities.astype(np.float16)
        if self.pictures:
            values["pictures"] = np.array(list(self.pictures), np.int64)
            content = io.BytesIO()
            _sheet(list(self.pictures.values())).save(content, "WEBP", quality=80)
            write_atomic(folder / pictures_name(split), content.getvalue())
        content = io.BytesIO()
        np.savez_compressed(content, **values)
        write_atomic(folder / answers_name(split), content.getvalue())

    @classmethod
    def read(cls, folder: Path, split: str = "test") -> Answers:
        path, pictures = folder / answers_name(split), folder / pictures_name(split)
        try:
            check_archive(path)
            with np.load(path, allow_pickle=False) as stored:
                held = {name: stored[name] for name in stored.files}
            kind = MultiLabelAnswers if held["labels"].ndim == 2 else Answers
            answers = kind(
                held["predictions"],
                held["labels"],
                tuple(map(str, held.get("paths", ()))),
                held.get("top"),
                held.get("probabilities"),
            )
            if not answers._sound():
                raise ValueError("its parts do not fit together")
        except Exception as error:  # zipfile, zlib and NumPy each have their own errors for damaged input
            raise DataError(f"{path} cannot be read ({error})", f"remove {folder} and train it again") from error
        if "pictures" not in held or not pictures.is_file():
            return answers
        sheet = viewable(decode(read_bounded(pictures, LIMIT), str(pictures)))
        return dataclasses.replace(answers, pictures=_tiles(sheet, held["pictures"].astype(np.int64).tolist()))


class MultiLabelAnswers(Answers):
    """The same of images with several labels: predictions and labels are (N, K) of 0 and 1, probabilities (N, K) of each class."""

    def _sound(self) -> bool:
        shape = self.labels.shape
        parts = (self.predictions, self.labels, self.labels if self.probabilities is None else self.probabilities)
        return all(part.shape == shape and part.dtype.kind in "iuf" for part in parts) and len(self.paths) in (0, len(self.labels))

    @property
    def _shares(self) -> np.ndarray:
        return np.zeros(self.labels.shape) if self.probabilities is None else self.probabilities.astype(np.float64)

    def describe(self, position: int, name: Callable[[int], str]) -> str:
        def listed(numbers: np.ndarray, shares: bool) -> str:
            words = [name(int(n)) + (f" {percent(self._shares[position, n])}" if shares else "") for n in np.flatnonzero(numbers)]
            return ", ".join(words) or "no label"

        return f"{listed(self.labels[position], False)}; answered: {listed(self.predictions[position], True)}"

    def disputed(self, position: int) -> list[int]:
        """The label it was surest of that is not there, and the one that it missed by most; the surest where all are right."""
        answers, labels, shares = self.predictions[position] == 1, self.labels[position] == 1, self._shares[position]
        wrong, missed = np.where(answers & ~labels, shares, -1), np.where(~answers & labels, shares, 2)
        labels_shown = [int(wrong.argmax())] * bool(wrong.max() >= 0) + [int(missed.argmin())] * bool(missed.min() <= 1)
        return labels_shown or [int(shares.argmax())]

    def errors(self) -> np.ndarray:
        """Positions of all images with a wrong label or without a true one, the surest of what is not so first."""
        surest = np.where(self.predictions != self.labels, np.abs(self._shares - self.labels), -1).max(axis=1)
        order = np.argsort(-surest, kind="stable")
        return order[surest[order] >= 0]

    def notable(self) -> dict[str, np.ndarray]:
        """The labels it was surest of that are not there, and those that are there and it was surest of that they are not."""
        wrong = np.where((self.predictions == 1) & (self.labels == 0), self._shares, -1).max(axis=1)
        missed = np.where((self.predictions == 0) & (self.labels == 1), self._shares, 2).min(axis=1)
        surest, faintest = np.argsort(-wrong, kind="stable"), np.argsort(missed, kind="stable")
        return {"most confident wrong labels": surest[wrong[surest] >= 0][:FEW], "missed by most": faintest[missed[faintest] <= 1][:FEW]}

    def by_class(self) -> dict[int, np.ndarray]:
        """For the worst classes first: images that it was surest have the label and do not, and the other way round."""
        wrong, missed = (self.predictions == 1) & (self.labels == 0), (self.predictions == 0) & (self.labels == 1)
        hits = ((self.predictions == 1) & (self.labels == 1)).sum(axis=0)
        f1 = 2 * hits / np.maximum(2 * hits + wrong.sum(axis=0) + missed.sum(axis=0), 1)
        present = np.flatnonzero(self.labels.any(axis=0))
        out: dict[int, np.ndarray] = {}
        for label in present[np.argsort(f1[present], kind="stable")][:CLASSES]:
            order = np.argsort(-self._shares[:, label], kind="stable")
            good = order[(self.predictions[order, label] == 1) & (self.labels[order, label] == 1)]
            out[int(label)] = np.concatenate([order[wrong[order, label]][:2], order[missed[order, label]][::-1][:2], good[:1]])
        return out


def agree(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """(N,) where two answers are the same; of several labels, all of them."""
    equal = one == two
    return equal.all(axis=1) if equal.ndim == 2 else equal


def small(image: Image.Image) -> Image.Image:
    """The whole picture in a square, its shape kept."""
    how = Image.Resampling.NEAREST if max(image.size) * 2 <= TILE else Image.Resampling.BICUBIC
    return ImageOps.pad(image.convert("RGB"), (TILE, TILE), how, color="white")


def _sheet(pictures: Sequence[Image.Image]) -> Image.Image:
    out = Image.new("RGB", (TILE * min(COLUMNS, len(pictures)), TILE * -(-len(pictures) // COLUMNS)), "white")
    for number, picture in enumerate(pictures):
        out.paste(picture, _corner(number))
    return out


def _tiles(sheet: Image.Image, positions: Sequence[int]) -> dict[int, Image.Image]:
    boxes = {position: _corner(number) for number, position in enumerate(positions)}
    inside = {p: (x, y) for p, (x, y) in boxes.items() if x + TILE <= sheet.width and y + TILE <= sheet.height}
    return {position: sheet.crop((x, y, x + TILE, y + TILE)) for position, (x, y) in inside.items()}


def _corner(number: int) -> tuple[int, int]:
    return TILE * (number % COLUMNS), TILE * (number // COLUMNS)
