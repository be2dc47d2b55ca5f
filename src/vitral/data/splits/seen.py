"""Which pictures a run has seen: what keeps its test split apart when its data has changed since.

A split that is carved is drawn from all pictures: one file more draws another, and most of what is test then was learnt from. So a run on
pictures of the user's own writes down which it saw, and its division is found again from that. A picture is known by its path; one that was
moved, by its name and size.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from vitral.base.errors import DataError
from vitral.base.progress import say
from vitral.data.sources.protocol import FileReader, ImageSet, ShardReader
from vitral.data.splits.fingerprint import file_size, fingerprint, found_in
from vitral.data.splits.split import Split

SPLITS = ("train", "validation", "unused")
"""What was learnt from, what was chosen on, and what of the training pictures a subset left out."""


@dataclass
class SeenImages:
    """What a run saw, split by split."""

    run: str
    """Its folder, for what is said."""
    splits: dict[str, np.ndarray] = field(default_factory=dict)
    """Of `SPLITS`: (N, 2) uint64, of a picture's path and of its name and size. Empty: a run that did not write it down."""
    fingerprint: str | None = None
    """Of its training split (data/fingerprint.py); None: not known either."""
    _told: bool = False

    @classmethod
    def of(cls, parts: dict[str, ImageSet], where: str) -> dict[str, np.ndarray] | None:
        """What is written down of each split; None: its pictures have no names that outlast a change."""
        kinds = {type(found_in(part.reader, int(index))[0]) for part in parts.values() for index in part.indices[:1]}
        if not kinds <= {FileReader, ShardReader}:
            return None
        return {split: np.stack([_paths(part, where), _names(part)], axis=1) for split, part in parts.items()}

    def recall(self, part: ImageSet, where: str, pool: ImageSet | None = None) -> np.ndarray:
        """For each picture of `part`: the place in `SPLITS` of the one that it was in, or -1 for a new one.

        Only a picture that is gone from `pool`, the training pictures of today, can have been moved: others may share a name and a size."""
        paths, out = _paths(part, where), np.full(len(part.indices), -1)
        here = paths if pool is None else np.concatenate([paths, _paths(pool, where)])
        moved: dict[int, int] = {}
        for place, split in enumerate(SPLITS):
            known = self.splits[split]
            out[np.isin(paths, known[:, 0])] = place
            moved |= dict.fromkeys(known[~np.isin(known[:, 0], here), 1].tolist(), place)
        new = np.flatnonzero(out < 0)
        if moved and len(new):
            out[new] = [moved.get(name, -1) for name in _names(part.some(new)).tolist()]
        return out

    def without_seen(self, part: ImageSet, where: str, pool: ImageSet, split: str, data: str) -> ImageSet:
        """What the source itself sets aside, without pictures that were moved there after they were seen."""
        seen = self.recall(part, where, pool)
        kept = seen < 0 if split == "test" else seen != 0
        if not kept.all():
            self._tell(f"{int((~kept).sum()):,} {split} pictures of {data} were learnt from or chosen on in {self.run}: they are left out")
        return part.some(np.flatnonzero(kept))

    def print_changes(self, seen: np.ndarray, data: str, carved: bool) -> None:
        """In a line: what is other than it was, and what is made of it."""
        new, gone = int((seen < 0).sum()), sum(map(len, self.splits.values())) - int((seen >= 0).sum())
        test = "every picture that it has not seen is a test picture" if carved else "new pictures are left out"
        changed = f"{new:,} pictures not seen then, {max(0, gone):,} seen ones gone"
        self._tell(
            f"{data} is divided otherwise now than when {self.run} learnt from it ({changed}): what it learnt from and chose on stays "
            f"apart, {test}, and scores are not those of its training; a test folder keeps a test fixed"
        )

    def unlike(self, training: Split, where: str, content: bool) -> bool:
        """Whether only the fingerprint is known of what was learnt from, and that of `training` is another."""
        return not self.splits and self.fingerprint not in (None, fingerprint(training, where, content))

    def refuse(self, data: str) -> DataError:
        return DataError(
            f"{data} is not as it was when {self.run} learnt from it, and which pictures it saw was not written down: no score on a split "
            "of it can be trusted",
            "put the pictures back as they were, or score pictures that it has not seen: `vitral eval MODEL folder:PATH`",
        )

    def _tell(self, text: str) -> None:
        if not self._told:
            say(f"note: {text}")
        self._told = True


def _paths(part: ImageSet, where: str) -> np.ndarray:
    found = (found_in(part.reader, int(index)) for index in part.indices)
    return _hashes(reader.where(number).removeprefix(where) for reader, number in found)


def _names(part: ImageSet) -> np.ndarray:
    found = (found_in(part.reader, int(index)) for index in part.indices)
    return _hashes(f"{os.path.basename(reader.where(number))}\0{file_size(reader, number)}" for reader, number in found)


def _hashes(texts: Iterable[str]) -> np.ndarray:
    digests = (hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), np.uint64)
