"""Training photographs decoded and resized once, kept on the disk and memory-mapped, instead of decoded anew in every epoch.

ROOT/cached/KEY/pixels.bin   the pictures one after the other, (height, width, channels) uint8
               index.npy     (N, 4) int64: where each begins, its height, width and channels; all zero: it cannot be read
               about.json    what it was made from; the folder appears whole or not at all

KEY is the SHA-256 of what the pictures are (name, size and time of change of every file, in order) and of how they are kept, so that a
cache of anything else is never read: it stays until `vitral data cache --delete`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import DataError, VitralError
from vitral.base.files import open_regular, read_json, replacing_folder, write_json, writing
from vitral.base.progress import say, track
from vitral.base.text import byte_size
from vitral.data.images.decode import Decoded, decode, in_threads, load_array
from vitral.data.images.preprocess import resized, size_of
from vitral.data.sources.protocol import ForwardingReader, Reader
from vitral.data.splits.split import Split

FOLDER = "cached"
PIXELS, INDEX, ABOUT = "pixels.bin", "index.npy", "about.json"
_VERSION = 1
_SAMPLED = 24
"""Pictures by which the size of a cache is estimated."""


def cached(split: Split, side: int, root: Path, build: bool = True) -> Split:
    """The same pictures from a cache under `root`, which is made when it is not there (not `build`: then the split as it is).

    side: pixels that the short side is resized to, where it is longer; 0: as they are, so that not a pixel differs.
    """
    if split.is_array or not len(split):
        return split
    folder = root / FOLDER / key_of(split, side)
    reader = _open_cache(folder, split)
    if reader is None and build:
        _build(folder, split, side)
        reader = _open_cache(folder, split)
        if reader is None:
            raise DataError(f"{folder} vanished while it was opened", "is another process deleting it? Try again")
    return split if reader is None else dataclasses.replace(split, reader=reader, indices=np.arange(len(split)))


def key_of(split: Split, side: int) -> str:
    """SHA-256 of names and times of the images and of how they are stored, in 32 digits."""
    digest = hashlib.sha256(f"{_VERSION} {side} {split.preprocess.interpolation}\n".encode())
    for index in split.indices.tolist():
        where, stamp = split.reader.where(index), split.reader.stamp(index)
        if stamp is None:
            raise DataError(f"{where} is not a file, so that a cache could not tell when it changes", "leave --cache out")
        digest.update(f"{where}\0{stamp}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _open_cache(folder: Path, split: Split) -> _CachedReader | None:
    """The pictures of a cache that is whole and has these; None: there is none."""
    try:
        about = read_json(folder / ABOUT)
        with open_regular(folder / INDEX) as file:
            index = load_array(file, str(folder / INDEX))
        size = (folder / PIXELS).stat().st_size
    except (VitralError, OSError):
        return None
    fits = index.dtype == np.int64 and index.shape == (len(split), 4) and (index >= 0).all()
    if not fits or size != about.get("bytes") or (index[:, 0] + index[:, 1:].prod(axis=1) > size).any():
        return None
    return _CachedReader(folder / PIXELS, index, split.reader, split.indices)


class _CachedReader(ForwardingReader):
    """Images of one file, which each process maps for itself; all but the pixels comes from the original reader."""

    def __init__(self, path: Path, index: np.ndarray, original: Reader, indices: np.ndarray) -> None:
        self.path, self.index, self.original, self.indices = path, index, original, indices
        self._map: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.index)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_map": None}

    def origin(self, index: int) -> tuple[Reader, int]:
        return self.original, int(self.indices[index])

    def image(self, index: int) -> Decoded:
        begin, height, width, channels = self.index[index].tolist()
        if not height:
            return super().image(index)  # which names what is wrong with it
        if self._map is None:
            self._map = np.memmap(self.path, np.uint8, mode="r")
        return decode(self._map[begin : begin + height * width * channels].reshape(height, width, channels), self.where(index))


def cache_size(split: Split, side: int) -> int:
    """Bytes that it would take, by a few pictures."""
    positions = np.unique(np.linspace(0, len(split) - 1, _SAMPLED).astype(int)).tolist()
    sizes = [pixels.size for position in positions if (pixels := _resized_pixels(split, position, side)) is not None]
    return round(float(np.mean(sizes)) * len(split)) if sizes else 0


def _build(folder: Path, split: Split, side: int) -> None:
    needed = cache_size(split, side)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder.parent).free
    if needed > free:
        raise DataError(
            f"a cache of {len(split):,} pictures takes about {byte_size(needed)}, and {folder.parent} has {byte_size(free)} free",
            "use a smaller --cache, another --root, or leave it out",
        )
    say(f"caching {len(split):,} pictures in {folder}: about {byte_size(needed)} (vitral data cache lists and deletes)")
    index = np.zeros((len(split), 4), np.int64)
    end = 0
    with replacing_folder(folder) as made:
        with writing(made), open(made / PIXELS, "wb") as file:
            read = in_threads(lambda position: _resized_pixels(split, position, side), range(len(split)))
            for position, pixels in enumerate(track(read, f"Caching {split.name}", total=len(split))):
                if pixels is None:
                    continue
                index[position] = end, *pixels.shape
                file.write(pixels.tobytes())
                end += pixels.size
        buffer = io.BytesIO()
        np.save(buffer, index)
        with writing(made):
            (made / INDEX).write_bytes(buffer.getvalue())
        about = {"split": split.name, "pictures": len(split), "side": side, "bytes": end, "first": split.where(0)}
        write_json(made / ABOUT, {**about, "unreadable": int((index[:, 1] == 0).sum()), "version": _VERSION})


def _resized_pixels(split: Split, position: int, side: int) -> np.ndarray | None:
    """(H, W, C) uint8; None: it cannot be read, an error names it when a training comes to it."""
    try:
        image = split.image(position)
    except DataError:
        return None
    width, height = size_of(image)
    short = min(width, height)
    if side and short > side:
        image = resized(image, (max(1, round(width * side / short)), max(1, round(height * side / short))), split.preprocess.interpolation)
    values = np.asarray(image)
    return values if values.ndim == 3 else values[:, :, None]


def caches(root: Path) -> list[dict[str, Any]]:
    """What is kept under a root, and what was left half-written by a process that was killed."""
    listed = []
    for folder in sorted((root / FOLDER).glob("*")) if (root / FOLDER).is_dir() else []:
        try:
            about = read_json(folder / ABOUT)
        except (VitralError, OSError):
            about = {}
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        listed.append({"key": folder.name, "whole": bool(about) and not folder.name.startswith("."), **about, "bytes": size})
    return listed


def delete_caches(root: Path, keys: list[str] | None = None) -> int:
    """Delete these, or (None) all; the bytes that are free again. A training that reads one keeps what it has mapped."""
    freed = 0
    for entry in caches(root):
        if keys is None or entry["key"] in keys:
            with writing(root / FOLDER / entry["key"]):
                shutil.rmtree(root / FOLDER / entry["key"])
            freed += entry["bytes"]
    return freed
