"""Which images a run has seen: they stay out of its test split when its data has changed since.

A split that is carved is drawn from all images: one file more draws another, and most of what is test then was trained on. So a run on
the user's own images records which it saw, and its splits are restored from that record. An image is recognised by its path; one that was
moved, by its name and size.
"""

from __future__ import annotations

import enum
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from vitral.base.errors import DataError
from vitral.base.progress import say
from vitral.data.sources.protocol import ImageSet, Source
from vitral.data.splits.fingerprint import fingerprint
from vitral.data.splits.split import Split


class SeenAs(enum.IntEnum):
    """The split of the run that an image was in."""

    NEW = -1
    TRAIN = 0
    VALIDATION = 1
    UNUSED = 2


SPLITS = tuple(code.name.lower() for code in SeenAs if code is not SeenAs.NEW)
"""What was trained on, what was chosen on, and what of the training images a subset left out."""


@dataclass
class SeenImages:
    """What a run saw, split by split."""

    run: str
    """Its folder, for messages."""
    splits: dict[str, np.ndarray] = field(default_factory=dict)
    """Of `SPLITS`: (N, 2) uint64, of an image's path and of its name and size. Empty: the run did not record it."""
    fingerprint: str | None = None
    """Of its training split (splits/fingerprint.py); None: not recorded either."""
    _noted: bool = False

    @classmethod
    def of(cls, parts: dict[str, ImageSet], where: str) -> dict[str, np.ndarray] | None:
        """What is recorded of each split; None: its images have no names that outlast a change."""
        if any(part.reader.key(int(index)) is None for part in parts.values() for index in part.indices[:1]):
            return None
        return {split: np.stack([_paths(part, where), _names(part)], axis=1) for split, part in parts.items()}

    def split_codes(self, part: ImageSet, where: str, pool: ImageSet | None = None) -> np.ndarray:
        """For each image of `part`, where the run saw it: a `SeenAs`.

        Only an image that is gone from `pool`, the training images of today, can have been moved: others may share a name and a size."""
        paths, codes = _paths(part, where), np.full(len(part.indices), SeenAs.NEW)
        here = paths if pool is None else np.concatenate([paths, _paths(pool, where)])
        moved: dict[int, int] = {}
        for split in SPLITS:
            recorded, code = self.splits[split], SeenAs[split.upper()]
            codes[np.isin(paths, recorded[:, 0])] = code
            moved |= dict.fromkeys(recorded[~np.isin(recorded[:, 0], here), 1].tolist(), code)
        new = np.flatnonzero(codes == SeenAs.NEW)
        if moved and len(new):
            codes[new] = [moved.get(name, SeenAs.NEW) for name in _names(part.select(new)).tolist()]
        return codes

    def without_seen(self, part: ImageSet, source: Source, split: str) -> ImageSet:
        """A split that the source itself sets aside, without images that were moved there after the run saw them."""
        codes = self.split_codes(part, source.where, source.train)
        unseen = codes == SeenAs.NEW if split == "test" else codes != SeenAs.TRAIN
        if not unseen.all():
            count = int((~unseen).sum())
            self._note(f"{count:,} {split} pictures of {source.name} were learnt from or chosen on in {self.run}: they are left out")
        return part.select(np.flatnonzero(unseen))

    def print_changes(self, codes: np.ndarray, source: Source) -> None:
        """Prints one line: how the data changed since the run, and how it is split now."""
        new, gone = int((codes == SeenAs.NEW).sum()), sum(map(len, self.splits.values())) - int((codes != SeenAs.NEW).sum())
        test = "every picture that it has not seen is a test picture" if source.test is None else "new pictures are left out"
        changed = f"{new:,} pictures not seen then, {max(0, gone):,} seen ones gone"
        self._note(
            f"{source.name} is divided otherwise now than when {self.run} learnt from it ({changed}): what it learnt from and chose on "
            f"stays apart, {test}, and scores are not those of its training; a test folder keeps a test fixed"
        )

    def differs(self, training: Split, where: str, content: bool) -> bool:
        """True if the run recorded only a fingerprint, and it differs from that of `training`."""
        return not self.splits and self.fingerprint not in (None, fingerprint(training, where, content))

    def refuse(self, data: str) -> DataError:
        return DataError(
            f"{data} is not as it was when {self.run} learnt from it, and which pictures it saw was not written down: no score on a split "
            "of it can be trusted",
            "put the pictures back as they were, or score pictures that it has not seen: `vitral eval MODEL folder:PATH`",
        )

    def _note(self, text: str) -> None:
        if not self._noted:
            say(f"note: {text}")
        self._noted = True


def _paths(part: ImageSet, where: str) -> np.ndarray:
    return _hashes(_key(part, index).removeprefix(where) for index in part.indices.tolist())


def _names(part: ImageSet) -> np.ndarray:
    return _hashes(f"{os.path.basename(_key(part, index))}\0{part.reader.size(index)}" for index in part.indices.tolist())


def _key(part: ImageSet, index: int) -> str:
    return part.reader.key(index) or part.reader.where(index)


def _hashes(texts: Iterable[str]) -> np.ndarray:
    digests = (hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), np.uint64)
