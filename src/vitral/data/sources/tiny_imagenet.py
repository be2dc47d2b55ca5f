"""Tiny-ImageNet at 32 × 32 pixels: from the published folder of 64-pixel files, or from tiles that hold thousands of pictures each.

tiny-imagenet-200/train/WNID/images/*.JPEG, val/images/*.JPEG, val/val_annotations.txt, wnids.txt, words.txt     as published
tiny-imagenet-200/00.webp … 21.webp, labels.npy, classes.json     5,000 squares of 32 pixels a tile, 50 rows of 100; the last two are val
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from vitral.base.errors import DataError
from vitral.base.files import read_json
from vitral.base.progress import track
from vitral.data.images.decode import decode
from vitral.data.images.preprocess import viewable

SIDE = 32
ROWS, COLUMNS = 50, 100
Arrays = tuple[np.ndarray, np.ndarray]


def tiny_folder(folder: Path) -> tuple[dict[str, Arrays], tuple[str, ...]]:
    """Pixels (N, 3, 32, 32) and labels of train and test (its val), and the class names."""
    return _tiles(folder) if (folder / "labels.npy").is_file() else _files(folder)


def _tiles(folder: Path) -> tuple[dict[str, Arrays], tuple[str, ...]]:
    names = sorted(folder.glob("[0-9][0-9].webp"))
    pixels = np.concatenate([_cut(viewable(decode(str(name)))) for name in track(names, "Reading tiles")])
    labels = np.load(folder / "labels.npy", allow_pickle=False).astype(np.int64)
    if len(labels) != len(pixels):
        raise DataError(f"{folder} holds {len(pixels):,} pictures and {len(labels):,} labels", "copy it again")
    test = 2 * ROWS * COLUMNS
    classes = tuple(str(words).split(",")[0] for _, words in read_json(folder / "classes.json"))
    return {"train": (pixels[:-test], labels[:-test]), "test": (pixels[-test:], labels[-test:])}, _unique(classes)


def _cut(tile: Image.Image) -> np.ndarray:
    image = np.asarray(tile.convert("RGB"))
    if image.shape != (ROWS * SIDE, COLUMNS * SIDE, 3):
        raise DataError(f"a tile of {image.shape[1]} × {image.shape[0]} pixels", f"it holds {ROWS} rows of {COLUMNS} squares of {SIDE}")
    return image.reshape(ROWS, SIDE, COLUMNS, SIDE, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, SIDE, SIDE)


def _files(folder: Path) -> tuple[dict[str, Arrays], tuple[str, ...]]:
    try:
        numbers = {name: label for label, name in enumerate((folder / "wnids.txt").read_text().split())}
        words = dict(line.split("\t", 1) for line in (folder / "words.txt").read_text().splitlines() if "\t" in line)
        rows = [line.split("\t") for line in (folder / "val" / "val_annotations.txt").read_text().splitlines()]
        found = {"train": [(path, numbers[name]) for name in numbers for path in sorted((folder / "train" / name / "images").iterdir())]}
        found["test"] = [(folder / "val" / "images" / row[0], numbers[row[1]]) for row in rows]
    except (OSError, KeyError, IndexError, ValueError) as error:
        raise DataError(f"{folder} is not the published tiny-imagenet-200 ({error})", "unpack tiny-imagenet-200.zip") from error
    arrays = {}
    for split, pairs in found.items():
        with ThreadPoolExecutor() as pool:
            read = track(pool.map(_small, [path for path, _ in pairs]), f"Reading {split}", total=len(pairs))
            arrays[split] = np.stack(list(read)), np.array([label for _, label in pairs], np.int64)
    return arrays, _unique(tuple(words.get(name, name).split(",")[0] for name in numbers))


def _small(path: Path) -> np.ndarray:
    image = viewable(decode(str(path))).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(image).transpose(2, 0, 1)


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    """Two synsets may share their first word."""
    return tuple(name if names.count(name) == 1 else f"{name} ({names[:place].count(name) + 1})" for place, name in enumerate(names))
