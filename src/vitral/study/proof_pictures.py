"""The pictures of a proof: all of a split, or of a folder; their labels, where they are the model's own classes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vitral.base.errors import DataError, UsageError, VitralError
from vitral.base.numbers import to_numpy
from vitral.data.images.preprocess import Preprocess
from vitral.data.sources.catalogue import CATALOGUE
from vitral.data.sources.pictures import find_pictures, open_readable
from vitral.data.splits.split import Split
from vitral.model.classifier import Classifier
from vitral.train.evaluate import evaluation_loader, match_split
from vitral.train.judged import as_trained

_CALIBRATION = 64
"""Pictures that weights are rounded for."""
_CHUNK = 16
"""Pictures in a batch."""


class ProofPictures:
    """The pictures of a proof and the labels of those that have the model's own classes.

    data: a data set's name, `folder:PATH`, or a folder of pictures. `count`: at most.
    An index is that of the split or of the sorted folder. What cannot be read has none.
    """

    def __init__(self, model: Classifier, data: str, split: str | None = None, root: str | None = None, count: int | None = None) -> None:
        if not model.config.classes:
            hint = "give it one: vitral probe or vitral train finetune"
            raise UsageError("this model has no head, so there are no answers to compare", hint)
        if count is not None and count < 1:
            raise UsageError(f"{count} pictures", "use at least one picture")
        self.model, self.data, self.split = model.cpu().eval(), data, split or "all"
        self.notes: list[str] = []
        self.images: Split | None = None
        self.true_labels: np.ndarray | None = None
        if data not in CATALOGUE and Path(data).is_dir():
            self.paths = find_pictures(data)
            self.count = min(len(self.paths), count or len(self.paths))
            self._note_rounding(min(_CALIBRATION, self.count), shared=True)
            return
        judged = as_trained(model, data, split, root, "skip")
        images = judged.open()
        self.split = images.name
        try:
            images = match_split(model, images, judged.name)
            self.true_labels = images.labels
        except VitralError as error:
            self.notes.append(f"without labels: {error.message}")
        self.images = images.balanced_subset(min(count, len(images)), 0) if count else images
        if self.true_labels is not None:
            self.true_labels = self.images.labels
        self.count = len(self.images)
        try:
            self.others = judged.open("train") if self.split != "train" else self.images
        except VitralError:
            self.others = self.images
        self._note_rounding(min(_CALIBRATION, len(self.others)), shared=self.split in ("all", "train") or self.others is self.images)

    def _note_rounding(self, count: int, shared: bool) -> None:
        self.notes.append(f"weights were rounded for {count} {'of these' if shared else 'training'} pictures, without their labels")

    def batches(self, most: int | None = None) -> Iterator[tuple[np.ndarray, list[int]]]:
        """Images (B, C, H, W) and their indices, `most` in all, without what cannot be read."""
        left = self.count if most is None else min(most, self.count)
        for images, indices in self._read():
            for start in range(0, min(left, len(indices)), _CHUNK):
                end = min(start + _CHUNK, left)
                yield images[start:end], indices[start:end]
            left -= min(left, len(indices))
            if not left:
                return

    def _read(self) -> Iterator[tuple[np.ndarray, list[int]]]:
        if self.images is None:
            index = {str(path): number for number, path in enumerate(self.paths)}
            readable = open_readable(self.paths[: self.count], self.model)
            while some := list(islice(readable, _CHUNK)):
                yield np.stack([to_numpy(picture.tensor) for picture in some]), [index[picture.source] for picture in some]
            return
        for batch in evaluation_loader(self.images, self.images.preprocess, torch.device("cpu"), _CHUNK).epoch(0):
            yield to_numpy(batch.images.float()), batch.indices.tolist()

    def calibration(self) -> Iterator[np.ndarray]:
        if self.images is None:
            yield from (images for images, _ in self.batches(_CALIBRATION))
            return
        some = self.others.balanced_subset(min(_CALIBRATION, len(self.others)), 0)
        for batch in evaluation_loader(some, some.preprocess, torch.device("cpu"), _CHUNK).epoch(0):
            yield from np.split(to_numpy(batch.images.float()), range(_CHUNK, len(batch.images), _CHUNK))

    def one(self) -> np.ndarray:
        for images, _ in self.batches(1):
            return images
        raise DataError("none of the pictures can be read", "check the files named above")

    def labels(self, indices: list[int]) -> np.ndarray | None:
        return None if self.true_labels is None else self.true_labels[indices]

    def where(self, index: int) -> str:
        return self.paths[index].name if self.images is None else Path(self.images.where(index)).name

    def shown(self, index: int) -> Image.Image:
        """As the model sees it."""
        preprocess = Preprocess.of(self.model)
        picture = preprocess(self.paths[index] if self.images is None else self.images.picture(index))
        return preprocess.as_image(picture.tensor).convert("RGB")
