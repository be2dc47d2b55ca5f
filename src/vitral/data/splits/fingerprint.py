"""Which images a split holds, in one hash: a run that goes on must go on with the same ones."""

from __future__ import annotations

import hashlib
import os

import numpy as np

from vitral.base.errors import DataError
from vitral.base.progress import track
from vitral.data.sources.protocol import ArrayReader, FileReader, JoinedReader, Reader, ShardReader
from vitral.data.splits.split import Split

SAMPLED = 4096
"""Images of an array whose pixels count, evenly spread: all of a small set, enough of a large one."""


def fingerprint(split: Split, where: str = "", content: bool = False) -> str:
    """SHA-256 over name, size and class of each image in its order; `content`: over its bytes too.

    `where`: the folder that the names are taken relative to, so that a set may move.
    """
    digest = hashlib.sha256()
    for position, index in enumerate(track(split.indices.tolist(), "Reading every picture", quiet=not content)):
        reader, number = found_in(split.reader, index)
        size = file_size(reader, number)
        digest.update(f"{reader.where(number).removeprefix(where)}\0{size}\0{split.truth(position)}\n".encode(errors="surrogateescape"))
        if content:
            digest.update(_content(reader, number))
    if isinstance(split.reader, ArrayReader) and len(split) and not content:
        some = np.unique(np.linspace(0, len(split) - 1, min(SAMPLED, len(split))).astype(int))
        digest.update(np.ascontiguousarray(split.reader.pixels[np.sort(split.indices[some])]).tobytes())
    return digest.hexdigest()


def found_in(reader: Reader, index: int) -> tuple[Reader, int]:
    """The reader that has an image itself, and its number there."""
    return reader.find(index) if isinstance(reader, JoinedReader) else (reader, index)


def file_size(reader: Reader, number: int) -> int:
    """In bytes, where images are files."""
    if isinstance(reader, FileReader):
        try:
            return os.stat(reader.where(number)).st_size
        except OSError:
            return -1  # gone: told when it is its turn
    return int(reader.size[number]) if isinstance(reader, ShardReader) else 0


def _content(reader: Reader, number: int) -> bytes:
    """The hash of an image as it is kept, or of its pixels where only its library knows how."""
    path, begin, size = reader.where(number), 0, -1
    if isinstance(reader, ShardReader):
        path, begin, size = str(reader.shards[reader.shard[number]]), int(reader.offset[number]), int(reader.size[number])
    elif not isinstance(reader, FileReader):
        return hashlib.sha256(np.ascontiguousarray(reader.image(number)).tobytes()).digest()
    try:
        with open(path, "rb") as file:
            file.seek(begin)
            return hashlib.file_digest(file, "sha256").digest() if size < 0 else hashlib.sha256(file.read(size)).digest()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})", "check the file") from error
