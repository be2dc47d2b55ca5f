"""Which images a split holds, in one hash: a resumed run must see the same ones."""

from __future__ import annotations

import hashlib

import numpy as np

from vitral.base.progress import track
from vitral.data.splits.split import Split

_SAMPLED = 4096
"""Images of an array whose pixels count, evenly spread: all of a small set, enough of a large one."""


def fingerprint(split: Split, where: str = "", content: bool = False) -> str:
    """SHA-256 over name, size and class of each image in its order; `content`: over its bytes too.

    `where`: the folder that the names are taken relative to, so that a set may move.
    """
    digest, reader = hashlib.sha256(), split.reader
    for position, index in enumerate(track(split.indices.tolist(), "Reading every picture", quiet=not content)):
        size = 0 if reader.key(index) is None else reader.size(index)  # of files
        row = f"{reader.where(index).removeprefix(where)}\0{size}\0{split.label_text(position)}\n"
        digest.update(row.encode(errors="surrogateescape"))
        if content:
            digest.update(hashlib.sha256(reader.content(index)).digest())
    if reader.pixels is not None and len(split) and not content:
        some = np.unique(np.linspace(0, len(split) - 1, min(_SAMPLED, len(split))).astype(int))
        digest.update(np.ascontiguousarray(reader.pixels[np.sort(split.indices[some])]).tobytes())
    return digest.hexdigest()
