"""The small named sets: published files (idx, CIFAR's batches) → arrays → a copy of one memory-mapped array per split.

No code from a file is run; the copy makes the second opening take no time.
"""

from __future__ import annotations

import codecs
import gzip
import io
import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core import multiarray

from vitral.base.errors import DataError, MissingError
from vitral.base.files import read_json, replacing_folder, write_json
from vitral.data.sources.catalogue import Entry
from vitral.data.sources.protocol import ArrayReader, ImageSet, Source
from vitral.data.sources.tiny_imagenet import tiny_folder
from vitral.data.splits.split import balanced_order

Arrays = tuple[np.ndarray, np.ndarray]
"""Pixels (N, C, H, W) uint8 and labels (N,) int64."""
DIGITS_TEST_SEED = 1797
"""The digits have no official test split; this one is fixed: 360 pictures, as many of each digit as its share."""
IDX_LIMIT = 1 << 30
DESCRIPTION = "facts.json"


def open_digits(entry: Entry) -> Source:
    """scikit-learn's own copy."""
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)[:, None]  # (1797, 1, 8, 8)
    whole = ImageSet.whole(ArrayReader(pixels, entry.name), bunch.target)
    order = balanced_order(whole.labels, DIGITS_TEST_SEED)
    held, kept = np.sort(order[: entry.test]), np.sort(order[entry.test :])
    return entry.source(entry.class_names, whole.some(kept), "scikit-learn", test=lambda: whole.some(held))


def open_small(entry: Entry, root: Path) -> Source:
    """The copy that `keep` wrote."""
    folder = root / entry.name

    def part(split: str) -> ImageSet:
        # Copy-on-write: torch wants memory that it may write to, the file stays as it is.
        pixels = np.load(folder / f"{split}_pixels.npy", mmap_mode="c", allow_pickle=False)
        return ImageSet.whole(ArrayReader(pixels, f"{entry.name} {split}"), np.load(folder / f"{split}_labels.npy", allow_pickle=False))

    names = tuple(read_json(folder / DESCRIPTION)["classes"])
    return entry.source(names, part("train"), str(folder), test=lambda: part("test"))


def kept(entry: Entry, root: Path) -> bool:
    """Whether the copy is here and whole."""
    folder = root / entry.name
    try:
        for split, count in (("train", entry.train), ("test", entry.test)):
            pixels = np.load(folder / f"{split}_pixels.npy", mmap_mode="r", allow_pickle=False)
            labels = np.load(folder / f"{split}_labels.npy", mmap_mode="r", allow_pickle=False)
            if pixels.shape != (count, entry.channels, *(entry.native_size or ())) or labels.shape != (count,):
                return False
    except (OSError, ValueError, EOFError):
        return False
    return (folder / DESCRIPTION).is_file()


def keep(entry: Entry, root: Path, arrays: dict[str, Arrays], source: str, class_names: tuple[str, ...] = ()) -> None:
    """Check the arrays against the catalogue and write the copy."""
    for split, count in (("train", entry.train), ("test", entry.test)):
        pixels, labels = arrays[split]
        if pixels.shape != (count, entry.channels, *(entry.native_size or ())) or labels.shape != (count,):
            raise DataError(
                f"{source} holds {pixels.shape} pixels and {labels.shape} labels ({split}), not {count} pictures", "fetch it again"
            )
        if labels.min() < 0 or labels.max() >= entry.classes:
            raise DataError(f"{source} has labels from {labels.min()} to {labels.max()} for {entry.classes} classes", "fetch it again")
    with replacing_folder(root / entry.name) as folder:
        for split, (pixels, labels) in arrays.items():
            np.save(folder / f"{split}_pixels.npy", np.ascontiguousarray(pixels))
            np.save(folder / f"{split}_labels.npy", labels)
        names = list(entry.class_names or class_names)
        write_json(folder / DESCRIPTION, {"name": entry.name, "source": source, "classes": names, "licence": entry.licence})


def keep_published(entry: Entry, root: Path, folder: Path) -> None:
    """Keep what lies in `folder` under the names that its publishers (and torchvision) use."""
    if entry.name in ("cifar10", "cifar100"):
        arrays, class_names = cifar_folder(folder, hundred=entry.name == "cifar100")
        keep(entry, root, arrays, str(folder), class_names)
    elif entry.name == "tinyimagenet32":
        arrays, class_names = tiny_folder(folder)
        keep(entry, root, arrays, str(folder), class_names)
    else:
        keep(entry, root, idx_folder(folder), str(folder))


def read_idx(path: Path) -> np.ndarray:
    """An idx file of bytes, plain or gzipped."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            content = file.read(IDX_LIMIT + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error})", "fetch it again") from error
    dimensions = content[3] if len(content) > 4 and content[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions))
    if not dimensions or len(content) - start != int(np.prod(shape, dtype=np.int64)):
        raise DataError(f"{path} is not an idx file of bytes, or it is cut off", "fetch it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def idx_folder(folder: Path) -> dict[str, Arrays]:
    """MNIST's four files."""
    out: dict[str, Arrays] = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images, labels = (read_idx(_first(folder, f"{prefix}-{part}-ubyte")) for part in ("images-idx3", "labels-idx1"))
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise DataError(f"{folder} holds {images.shape} pictures and {labels.shape} labels ({split})", "fetch it again")
        out[split] = images[:, None], labels.astype(np.int64)
    return out


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


def cifar_folder(folder: Path, hundred: bool) -> tuple[dict[str, Arrays], tuple[str, ...]]:
    """CIFAR-10's or CIFAR-100's Python version, and its class names."""
    files = (
        {"train": ["train"], "test": ["test"]} if hundred else {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
    )
    key, names = (
        ("fine_labels", read_batch(folder / "meta")["fine_label_names"])
        if hundred
        else ("labels", read_batch(folder / "batches.meta")["label_names"])
    )
    out: dict[str, Arrays] = {}
    for split, parts in files.items():
        batches = [read_batch(folder / part) for part in parts]
        pixels = np.concatenate([np.asarray(batch["data"], np.uint8).reshape(-1, 3, 32, 32) for batch in batches])
        out[split] = pixels, np.concatenate([np.asarray(batch[key], np.int64) for batch in batches])
    return out, tuple(str(name) for name in names)
