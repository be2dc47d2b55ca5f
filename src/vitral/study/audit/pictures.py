"""The pictures of an audit: which are explained, what is known of them, and what is done to them that must not change a map."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitral.base.errors import DataError
from vitral.base.files import read_bounded
from vitral.base.picture import Picture
from vitral.base.progress import say
from vitral.config import DataConfig
from vitral.data.images.decode import decode
from vitral.data.images.preprocess import Preprocess, open_picture, viewable
from vitral.data.sources.catalogue import CATALOGUE
from vitral.data.sources.pictures import find_pictures, open_readable
from vitral.data.splits.open import open_split
from vitral.look.faithfulness import on_grid
from vitral.model.classifier import Classifier
from vitral.train.judged import as_trained

SURE = 0.5
"""Confidence from which a picture is explained before others."""
_NOISE = 0.1
"""Standard deviation of the noise that must not change a map, on pixels of spread 1."""


def open_pictures(model: Classifier, data: Any, split: str | None, count: int, seed: int) -> tuple[list[Picture], bool]:
    """Up to `count` pictures as the model wants them, drawn by the seed; and whether a mirrored one means the same."""
    root = data.root if isinstance(data, DataConfig) else None
    data = data.name if isinstance(data, DataConfig) else data
    if isinstance(data, str) and split is None and data.startswith("folder:"):
        folder = Path(data.removeprefix("folder:"))
        if folder.is_dir() and not any(path.is_dir() for path in folder.iterdir()):
            data = folder  # no classes, and none are needed
    if isinstance(data, str) and (data in CATALOGUE or not Path(data).is_dir()):
        if split is not None:
            opened = as_trained(model, data, split, root, "skip").open()
        else:
            opened = open_split(DataConfig(name=data, root=root, on_bad_image="skip"), Preprocess.of(model))
        some = opened.balanced_subset(min(count, len(opened)), seed)
        opened_pictures = []
        for index in range(len(some)):
            try:
                opened_pictures.append(open_picture(some.picture(index), model, some.where(index)))
            except DataError as error:
                say(f"skipped: {error.message}")
        return opened_pictures, opened.flip
    sources = find_pictures(data) if isinstance(data, str | Path) else list(data)
    order = np.random.default_rng(seed).permutation(len(sources))[:count]
    return list(open_readable((sources[index] for index in np.sort(order)), model)), True


def sure_ones(confidence: np.ndarray, answers: np.ndarray, count: int) -> np.ndarray:
    """Positions of pictures to explain: those the model is sure of first, and of as many classes as there are."""
    taken: dict[int, int] = {}
    turns = np.zeros(len(answers), int)
    for index in np.argsort(-(confidence >= SURE).astype(int), kind="stable"):
        label = int(answers[index])
        turns[index] = taken.get(label, 0)
        taken[label] = taken.get(label, 0) + 1
    return np.lexsort((np.arange(len(answers)), turns, confidence < SURE))[:count]


def fours(confidence: np.ndarray, answers: np.ndarray, count: int, seed: int) -> list[np.ndarray]:
    """Up to `count` sets of four pictures that the model gives four classes, the surest first; no picture is in two of them."""
    left: dict[int, list[int]] = {}
    for index in np.argsort(-confidence, kind="stable"):
        left.setdefault(int(answers[index]), []).append(int(index))
    draw, sets = np.random.default_rng(seed), []
    while len(sets) < count and len(left) >= 4:
        most = sorted(left, key=lambda label: -len(left[label]))[:4]  # so that as many sets as possible can be made
        sets.append(draw.permutation([left[label].pop(0) for label in most]))
        left = {label: some for label, some in left.items() if some}
    return sets


def changed(
    image: torch.Tensor, kind: str, grid: tuple[int, int], draw: torch.Generator
) -> tuple[torch.Tensor, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]]:
    """An image that shows the same, and how its map and the first one are laid on each other."""
    if kind == "noise":
        return image + _NOISE * torch.randn(image.shape, generator=draw).to(image), lambda new, old: (new, old)
    if kind == "mirror":
        return image.flip(-1), lambda new, old: (new[..., ::-1], old)
    # A crop: everything moves by one patch down and to the right, the edge is repeated.
    down, across = (max(1, round(size / count)) for size, count in zip(image.shape[-2:], grid, strict=True))
    padded = torch.nn.functional.pad(image[None], (across, 0, down, 0), mode="replicate")[0]
    return padded[:, : image.shape[1], : image.shape[2]].contiguous(), lambda new, old: (new[..., 1:, 1:], old[..., :-1, :-1])


def read_masks(model: Classifier, folder: Path, sources: Sequence[str], grid: tuple[int, int]) -> dict[int, np.ndarray]:
    """The patches (h, w) inside the mask of each picture that has one, by its place among `sources`."""
    plain = dataclasses.replace(Preprocess.of(model), channels=1, mean=(0.0,), std=(1.0,))
    masks = {}
    for index, source in enumerate(sources):
        path = folder / f"{Path(source).stem}.png"
        if path.is_file():
            inside = plain.pixels(viewable(decode(read_bounded(path, 64 << 20), str(path))).convert("L"))[0] > 127
            patches = on_grid(inside.astype(float), grid) > 0.5
            masks |= {index: patches} if patches.any() and not patches.all() else {}
    if not masks:
        raise DataError(f"{folder} has no mask for any of the pictures", "name each PICTURE.png, white where the thing is")
    return masks


def as_pixels(model: Classifier, image: torch.Tensor) -> np.ndarray:
    """(H, W, 3) uint8 of what a model was shown."""
    return np.asarray(Preprocess.of(model).as_image(image).convert("RGB"))
