"""The pictures of a proof: all of a split, or of a folder; their labels, where they are the model's own classes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vitral.base.errors import DataError, VitralError
from vitral.base.numbers import to_numpy
from vitral.data.images.preprocess import Preprocess
from vitral.data.sources.catalogue import CATALOGUE
from vitral.data.sources.pictures import find_pictures, open_readable
from vitral.data.splits.split import Split
from vitral.model.classifier import Classifier
from vitral.train.evaluate import evaluation_loader, match_split
from vitral.train.judged import as_trained

CALIBRATION = 64
"""Pictures that weights are rounded for."""
CPU = torch.device("cpu")
CHUNK = 16
"""Pictures at a time."""


class ProofPictures:
    """Pictures by their places in the split or in the sorted folder; what cannot be read leaves its place empty."""

    def __init__(self, model: Classifier, data: str, split: str | None, root: str | None, count: int | None) -> None:
        self.model, self.split = model, split or "all"
        self.notes: list[str] = []
        self.images: Split | None = None
        self.known: np.ndarray | None = None
        if data not in CATALOGUE and Path(data).is_dir():
            self.paths = find_pictures(data)
            self.count = min(len(self.paths), count or len(self.paths))
            self._tell(min(CALIBRATION, self.count), shared=True)
            return
        judged = as_trained(model, data, split, root, "skip")
        images = judged.open()
        self.split = images.name
        try:
            images = match_split(model, images, judged.name)
            self.known = images.labels
        except VitralError as error:
            self.notes.append(f"without labels: {error.message}")
        self.images = images.balanced_subset(min(count, len(images)), 0) if count else images
        if self.known is not None:
            self.known = self.images.labels
        self.count = len(self.images)
        try:
            self.others = judged.open("train") if self.split != "train" else self.images
        except VitralError:
            self.others = self.images
        self._tell(min(CALIBRATION, len(self.others)), shared=self.split in ("all", "train") or self.others is self.images)

    def _tell(self, count: int, shared: bool) -> None:
        self.notes.append(f"weights were rounded for {count} {'of these' if shared else 'training'} pictures, without their labels")

    def batches(self, most: int | None = None) -> Iterator[tuple[np.ndarray, list[int]]]:
        """Images (B, C, H, W) and their places, `most` in all; what cannot be read is passed over."""
        left = self.count if most is None else min(most, self.count)
        for images, places in self._read():
            for start in range(0, min(left, len(places)), CHUNK):
                end = min(start + CHUNK, left)
                yield images[start:end], places[start:end]
            left -= min(left, len(places))
            if not left:
                return

    def _read(self) -> Iterator[tuple[np.ndarray, list[int]]]:
        if self.images is None:
            place = {str(path): number for number, path in enumerate(self.paths)}
            found = open_readable(self.paths[: self.count], self.model)
            while some := list(islice(found, CHUNK)):
                yield np.stack([to_numpy(picture.tensor) for picture in some]), [place[picture.source] for picture in some]
            return
        for batch in evaluation_loader(self.images, self.images.preprocess, CPU, CHUNK).epoch(0):
            yield to_numpy(batch.images.float()), batch.indices.tolist()

    def calibration(self) -> Iterator[np.ndarray]:
        if self.images is None:
            yield from (images for images, _ in self.batches(CALIBRATION))
            return
        some = self.others.balanced_subset(min(CALIBRATION, len(self.others)), 0)
        for batch in evaluation_loader(some, some.preprocess, CPU, CHUNK).epoch(0):
            yield from np.split(to_numpy(batch.images.float()), range(CHUNK, len(batch.images), CHUNK))

    def one(self) -> np.ndarray:
        for images, _ in self.batches(1):
            return images
        raise DataError("none of the pictures can be read", "check the files named above")

    def labels(self, places: list[int]) -> np.ndarray | None:
        return None if self.known is None else self.known[places]

    def where(self, place: int) -> str:
        return self.paths[place].name if self.images is None else Path(self.images.where(place)).name

    def shown(self, place: int) -> Image.Image:
        """As the model sees it."""
        preprocess = Preprocess.of(self.model)
        picture = preprocess(self.paths[place] if self.images is None else self.images.picture(place))
        return preprocess.as_image(picture.tensor).convert("RGB")
