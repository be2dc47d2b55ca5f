"""Named sets of photographs in the layout their publishers (and torchvision) use."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np

from vitral.base.errors import DataError
from vitral.base.lazy import needed
from vitral.data.sources.protocol import FileReader, ImageSet

_Published: TypeAlias = tuple[dict[str, ImageSet], tuple[str, ...]]
"""Split → images, and the class names."""


def flowers_folder(folder: Path) -> _Published:
    """Flowers-102 with the official split: 1,020 pictures to train, 1,020 to validate, 6,149 to test."""
    from scipy.io import loadmat

    try:
        sets = loadmat(folder / "setid.mat", squeeze_me=True)
        labels = np.asarray(loadmat(folder / "imagelabels.mat", squeeze_me=True)["labels"], np.int64) - 1
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise DataError(f"the tables of {folder} cannot be read ({error})", "fetch the data set again") from error
    reader = FileReader([folder / "jpg" / f"image_{number:05d}.jpg" for number in range(1, len(labels) + 1)])
    whole = ImageSet.whole(reader, labels)
    parts = {
        name: whole.select(np.atleast_1d(sets[key]).astype(int) - 1)
        for name, key in (("train", "trnid"), ("validation", "valid"), ("test", "tstid"))
    }
    return parts, _flower_names() if labels.max() < 102 else ()


def _flower_names() -> tuple[str, ...]:
    names = getattr(needed("torchvision.datasets", "Flowers-102").Flowers102, "classes", None)
    return tuple(names) if names else tuple(f"flower {number}" for number in range(1, 103))


def pets_folder(folder: Path) -> _Published:
    """Oxford-IIIT Pet: lists of `name class species breed`; a class is a breed, named as the file without its number."""
    names: dict[int, str] = {}
    parts: dict[str, ImageSet] = {}
    for split in ("trainval", "test"):
        rows = [
            line.split()
            for line in (folder / "annotations" / f"{split}.txt").read_text().splitlines()
            if line.strip() and not line.startswith("#")
        ]
        if not all(len(row) == 4 and row[1].isdigit() for row in rows):
            raise DataError(f"{folder / 'annotations' / split}.txt is damaged", "fetch the data set again")
        names |= {int(row[1]) - 1: row[0].rpartition("_")[0].replace("_", " ") for row in rows}
        labels = np.asarray([int(row[1]) - 1 for row in rows], np.int64)
        parts[split] = ImageSet.whole(FileReader([folder / "images" / f"{row[0]}.jpg" for row in rows]), labels)
    class_names = tuple(names.get(label, f"breed {label + 1}") for label in range(max(names) + 1))
    return {"train": parts["trainval"], "test": parts["test"]}, class_names
