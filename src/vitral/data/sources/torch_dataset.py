"""A torch Dataset of one's own as a source: anything that gives (image, label) by number.

Images are PIL images, paths, uint8 arrays (H, W[, C]) or uint8 tensors (C, H, W): as they are, since they are resized, augmented and
normalised here. Labels are whole numbers from 0, or several as a 0 or 1 for each class; names come from the data set's `classes` where
it has them, as torchvision's do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, Subset

from vitral.base.errors import DataError, UsageError
from vitral.base.numbers import to_numpy
from vitral.base.origin import OWN
from vitral.base.progress import track
from vitral.data.images.decode import Decoded, decode
from vitral.data.sources.folders import SPLITS
from vitral.data.sources.protocol import ImageSet, Reader, Source

_OwnData = Dataset[Any] | Mapping[str, Dataset[Any]]
"""One data set, to be split here, or one for each split."""


class DatasetReader(Reader):
    """Images of a Dataset."""

    def __init__(self, dataset: Any, name: str) -> None:
        self.dataset, self.name = dataset, name

    def __len__(self) -> int:
        return len(self.dataset)

    def image(self, index: int) -> Decoded:
        image = self.dataset[int(index)][0]
        if isinstance(image, torch.Tensor):
            if image.dtype != torch.uint8 or image.ndim != 3:
                raise DataError(
                    f"{self.where(index)} is a tensor {tuple(image.shape)} of {str(image.dtype).removeprefix('torch.')}",
                    "give images before they are turned into floats and normalised: PIL images, or uint8 tensors (C, H, W)",
                )
            image = np.ascontiguousarray(to_numpy(image.permute(1, 2, 0)))
        return decode(image, self.where(index))

    def where(self, index: int) -> str:
        return f"{self.name} item {index}"


def open_own(data: _OwnData) -> Source:
    """The source that `fit(…, data=data)` learns from."""
    datasets: dict[str, Any] = dict(data) if isinstance(data, Mapping) else {"train": data}
    if "train" not in datasets or not set(datasets) <= set(SPLITS):
        raise UsageError(f"the data has {', '.join(datasets) or 'nothing'}", f"give a Dataset, or one for each of {', '.join(SPLITS)}")
    name = own_name(datasets["train"])
    parts = {split: part_of(dataset, name) for split, dataset in datasets.items()}
    names = class_names(datasets["train"], np.concatenate([part.labels for part in parts.values()]))
    return Source.of_parts(name, names, parts, "given by the program")


def own_name(thing: object) -> str:
    """`own:FashionMNIST`: what a run's config says of a Dataset or a module that is not its own to open."""
    return f"{OWN}:{type(thing).__name__}"


def part_of(dataset: Any, name: str) -> ImageSet:
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise UsageError(f"{name} has no length or no items by number", "give a Dataset with __len__ and __getitem__, not a stream")
    labels = _stored_labels(dataset)
    if labels is None:
        labels = np.array(
            [_label(dataset[number], f"{name} item {number}") for number in track(range(len(dataset)), f"Reading the labels of {name}")]
        )
    return ImageSet.whole(DatasetReader(dataset, name), labels)


def class_names(dataset: Any, labels: np.ndarray) -> tuple[str, ...]:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    count = labels.shape[1] if labels.ndim == 2 else int(labels.max()) + 1 if len(labels) else 0
    names = tuple(map(str, getattr(dataset, "classes", None) or ()))
    return names if len(names) >= count else tuple(map(str, range(count)))


def _stored_labels(dataset: Any) -> np.ndarray | None:
    """Labels that need no image to be read: torchvision's `targets`."""
    if isinstance(dataset, Subset):
        inner = _stored_labels(dataset.dataset)
        return None if inner is None else inner[np.asarray(dataset.indices, np.int64)]
    targets = getattr(dataset, "targets", None)
    if targets is None or getattr(dataset, "target_transform", None) is not None or len(targets) != len(dataset):
        return None
    return np.asarray(targets, np.int64)


def _label(item: Any, where: str) -> Any:
    """Of (image, label): a number, or a 0 or 1 for each class."""
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise DataError(f"{where} is of type {type(item).__name__}", "give (image, label)")
    try:
        values = np.asarray(item[1])
        return values.astype(np.uint8) if values.ndim == 1 and len(values) > 1 else int(item[1])
    except (TypeError, ValueError):
        raise DataError(f"{where} has the label {item[1]!r}", "give whole numbers from 0, and the names as `classes`") from None
