"""Which images a split holds, in one hash: a run that goes on must go on with the same ones."""

from __future__ import annotations

import hashlib
import os

import numpy as np

from vitral.base.errors import DataError
from vitral.data.source import ArrayReader, FileReader, ShardReader
from vitral.data.split import Split

SAMPLED = 4096
"""Images of an array whose pixels count, evenly spread: all of a small set, enough of a large one."""


def fingerprint(split: Split, where: str = "", content: bool = False) -> str:
    """SHA-256 over name, size and class of each image in its order; `content`: over its bytes too.

    `where`: the folder that the names are taken relative to, so that a set may move.
    """
    digest, reader = hashlib.sha256(), split.reader
    for index, label in zip(split.indices.tolist(), split.labels.tolist(), strict=True):
        name, size = reader.where(index), 0
        if isinstance(reader, FileReader):
            try:
                size = os.stat(name).st_size
            except OSError:
                size = -1  # gone: told when it is its turn
            if content:
                digest.update(_bytes(name))
        elif isinstance(reader, ShardReader):
            size = int(reader.size[index])
        digest.update(f"{name.removeprefix(where)}\0{size}\0{split.class_names[label]}\n".encode(errors="surrogateescape"))
    if isinstance(reader, ArrayReader) and len(split):
        some = np.unique(np.linspace(0, len(split) - 1, len(split) if content else min(SAMPLED, len(split))).astype(int))
        digest.update(np.ascontiguousarray(reader.pixels[np.sort(split.indices[some])]).tobytes())
    return digest.hexdigest()


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})", "check the file") from error
