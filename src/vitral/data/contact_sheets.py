"""Data sets to look at: images of each class, and what a model really sees after augmentation."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch

from vitral.base.numbers import to_numpy
from vitral.base.text import percent
from vitral.data.keys import generator
from vitral.data.loader import Batch, Loader
from vitral.data.splits.open import Data
from vitral.data.splits.split import Split
from vitral.draw.provenance import command_line, save_figure
from vitral.draw.tiles import class_sheet, picture_sheet

_CLASSES_PER_PAGE = 50


def class_examples(split: Split, count: int = 10, seed: int = 0) -> dict[str, np.ndarray]:
    """Up to `count` seeded positions of each class."""
    draw = generator(seed, "class sheet")
    return {name: np.sort(draw.permutation(split.indices_of_class(label))[:count]) for label, name in enumerate(split.class_names)}


def save_class_sheets(data: Data, out: Path, count: int = 10, seed: int = 0) -> list[Path]:
    """OUT/classes.png: a row for each class (several pages when there are many)."""
    rows = [(name, positions) for name, positions in class_examples(data.train, count, seed).items() if len(positions)]
    pages = [rows[start : start + _CLASSES_PER_PAGE] for start in range(0, len(rows), _CLASSES_PER_PAGE)]
    paths: list[Path] = []
    for number, page in enumerate(pages, 1):
        images = {name: [data.train.picture(int(position)) for position in positions] for name, positions in page}
        stem = out / ("classes" if len(pages) == 1 else f"classes-{number}")
        shown = np.concatenate([positions for _, positions in page])
        numbers = {"positions": shown, "labels": data.train.labels[shown]}
        record = {"command": command_line(), "data": data.name, "split": "train", "seed": seed}
        paths += save_figure(class_sheet(images, title=f"{data.name}: training pictures"), stem, numbers, record, formats=("png",))
    return paths


def save_seen_sheet(data: Data, out: Path, count: int = 30, seed: int = 0) -> list[Path]:
    """OUT/augmented.png: one training batch as the model gets it, after cropping, augmentation and mixing, normalisation undone."""
    loader = Loader(data.train, batch_size=min(count, len(data.train)), policy=data.policy, seed=seed, train=True)
    # Policies that mix do so in some batches only: show a plain one and the most mixed of several, half and half.
    batches = [next(loader.epoch(epoch)) for epoch in range(16)] if loader.policy.mixup + loader.policy.cutmix else [next(loader.epoch(0))]
    plain = next((batch for batch in batches if batch.labels_b is None), batches[0])
    mixed = min((batch for batch in batches if batch.lam is not None), key=_evenness, default=None)
    half = len(plain.labels) // 2
    shown = [(plain, range(len(plain.labels)))] if mixed is None else [(plain, range(half)), (mixed, range(half))]
    images = [data.preprocess.as_image(batch.images[i]) for batch, rows in shown for i in rows]
    captions = [_caption(batch, i, data.class_names) for batch, rows in shown for i in rows]
    title = f"{data.name}: what the model sees ({data.policy.name})"
    record = {
        "command": command_line(),
        "data": data.name,
        "policy": data.policy.name,
        "seed": seed,
        "preprocess": dataclasses.asdict(data.preprocess),
    }
    numbers = {"positions": np.concatenate([to_numpy(batch.indices[list(rows)]) for batch, rows in shown])}
    figure = picture_sheet(images, captions, columns=6, title=title, width=1.2)
    return save_figure(figure, out / "seen", numbers, record, formats=("png",))


def _evenness(batch: Batch) -> float:
    """0 when both images count alike."""
    return abs(float(batch.lam[0]) - 0.5) if batch.lam is not None else 1.0


def _caption(batch: Batch, row: int, class_names: tuple[str, ...]) -> str:
    first = _label_text(batch.labels[row], class_names)
    if batch.labels_b is None or batch.lam is None:
        return first
    lam = float(batch.lam[row])
    return f"{percent(lam)} {first}, {percent(1 - lam)} {_label_text(batch.labels_b[row], class_names)}"


def _label_text(label: torch.Tensor, class_names: tuple[str, ...]) -> str:
    """A class, or all labels of a multi-label image."""
    numbers = label.flatten().nonzero().flatten().tolist() if label.is_floating_point() else [int(label)]
    return ", ".join(class_names[number] for number in numbers) or "no label"
