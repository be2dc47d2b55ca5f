"""Data sets ready for use: splits, statistics and what is recorded about them."""

from __future__ import annotations

import dataclasses
import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import DataError, one_of
from vitral.config import DataConfig
from vitral.data.images.augment import Policy, policy
from vitral.data.images.preprocess import Preprocess
from vitral.data.keys import generator
from vitral.data.sources.catalogue import CATALOGUE
from vitral.data.sources.folders import open_pictures
from vitral.data.sources.kinds import open_kind, parse
from vitral.data.sources.protocol import UNLABELLED, ImageSet, Source, unlabelled
from vitral.data.splits.fingerprint import fingerprint
from vitral.data.splits.near_duplicates import exact_duplicates
from vitral.data.splits.sealed import SHARE, check_open, seal, validation_share
from vitral.data.splits.seen import SeenAs, SeenImages
from vitral.data.splits.split import Split, balanced_positions, carve, check, strata

_TEST_SHARE = 0.2
"""Share of the pictures carved out for testing when the source has no test split."""
_STATISTICS_IMAGES = 256
"""Training pictures read to measure the mean and standard deviation of a set that does not publish them."""
UNBALANCED = 2.0
"""Largest class per smallest class from which a set is called unbalanced."""
PHOTOGRAPH_SIZE = (224, 224)
SPLITS = ("all", "test", "validation", "train", "sealed")
"""What a model can be scored on."""


class Data:
    """A data set whose pictures come out as one model wants them."""

    def __init__(
        self,
        splits: Splits,
        config: DataConfig,
        preprocess: Preprocess,
    ) -> None:
        source = splits.source
        self.name, self.where, self.notes = source.name, source.where, source.notes
        self.class_names = source.class_names if source.class_names != UNLABELLED else ()
        self.config, self.preprocess = config, preprocess
        self.train, self.validation = (
            _as_split(name, part, source, config, preprocess) for name, part in (("train", splits.train), ("validation", splits.validation))
        )
        self._splits = splits
        self._open: dict[str, Split] = {}
        self.copies: dict[str, int] = {}
        """Split → number of its images that are byte-identical to a training image."""
        self.opened: dict[str, str] = {}
        """When test, or the sealed pictures, were first opened (UTC)."""

    @property
    def channels(self) -> int:
        return self.preprocess.channels

    @property
    def image_size(self) -> tuple[int, int]:
        return self.preprocess.image_size

    @property
    def mean(self) -> tuple[float, ...]:
        return self.preprocess.mean

    @property
    def std(self) -> tuple[float, ...]:
        return self.preprocess.std

    @property
    def policy(self) -> Policy:
        """The configured augmentation, made for these pictures."""
        config, train = self.config, self.train
        return policy(config.augment, flip=train.flip, photographs=train.photographs, mixup=config.mixup, cutmix=config.cutmix)

    def require_single_label(self, what: str) -> None:
        """Refuse by name what can do nothing with several labels a picture."""
        if self.train.multi_label:
            raise DataError(f"{self.name} has several labels a picture, and {what} needs one", "give it data of one class a picture")

    def test(self) -> Split:
        """The test split; the first call is recorded in `opened`."""
        return self.open("test")

    def open(self, name: str) -> Split:
        """A split that is closed at first: test or sealed. Refused where the stage keeps it closed. Validation never is."""
        if name == "validation":
            return self.validation
        check_open(self.config, name)
        if name not in self._open:
            self._open[name] = _as_split(name, self._splits.closed(name), self._splits.source, self.config, self.preprocess)
            self.copies[name] = exact_duplicates(self.train, self._open[name])
            self.opened[name] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return self._open[name]

    def fingerprints(self) -> dict[str, str]:
        """Split → hash of its images. A resumed run compares it to detect changed data."""
        content = self.config.fingerprint == "content"
        return {split.name: fingerprint(split, self.where, content) for split in (self.train, self.validation)}

    def seen(self) -> dict[str, np.ndarray] | None:
        """What a run that learns from this writes down, so that its test split stays its own (see splits/seen.py).

        None: pictures that never change, those of a named set, or that have no names."""
        if self.name in CATALOGUE:
            return None
        splits = self._splits
        return SeenImages.of({"train": splits.train, "validation": splits.validation, "unused": splits.unused}, self.where)

    def describe(self) -> dict[str, Any]:
        """What a run folder records."""
        counts, imbalance = self.train.counts(), self.train.imbalance()
        return {
            "name": self.name,
            "where": self.where,
            "train": len(self.train),
            "validation": len(self.validation),
            "classes": list(self.class_names),
            "class_counts": counts.tolist(),
            "missing_classes": [self.class_names[label] for label in np.flatnonzero(counts == 0)],
            "imbalance": imbalance,
            "unbalanced": imbalance >= UNBALANCED,
            "image_size": list(self.image_size),
            "channels": self.channels,
            "mean": list(self.mean),
            "std": list(self.std),
            "split_seed": self.config.split_seed,
            "fingerprint": self.fingerprints(),
            "subset": self.config.subset,
            "stage": self.config.stage,
            "opened": dict(self.opened),
            "copies": dict(self.copies),
            "notes": list(self.notes),
        }


def open_data(
    config: DataConfig,
    *,
    image_size: tuple[int, int] | int | None = None,
    channels: int | None = None,
    preprocess: Preprocess | None = None,
    source: Source | None = None,
    seen: SeenImages | None = None,
) -> Data:
    """Open the data set that `config` names.

    - source: what it is opened from, where it is open already.
    - seen: images that the evaluated run was trained on. They are kept out of the test split.

    What the model wants (`preprocess`, or a size and channels) decides how images come out. Without it: the data set's own size,
    channels, mean and standard deviation. Fields of `config` (resize, mean, std) come before all of these.
    """
    source = source or open_source(config)
    splits = Splits.of(source, config)
    if seen is not None and seen.splits:
        splits = splits.as_seen(seen, config)
    preprocess = _preprocess(source, config, image_size, channels, preprocess, splits.train)
    data = Data(splits.limited_to(config), config, preprocess)
    if not splits.restored:
        check(data.train.labels, source.class_names, f"{source.name} (train)", whole=source.class_names != UNLABELLED)
    if seen is not None and source.test is None and seen.differs(data.train, source.where, config.fingerprint == "content"):
        raise seen.refuse(source.name)
    return data


@dataclass(frozen=True)
class Splits:
    """A source divided into what is trained on, validated on and tested on."""

    source: Source
    train: ImageSet
    validation: ImageSet
    test: ImageSet
    sealed: ImageSet | None
    unused: ImageSet
    """Training images that a subset leaves out."""
    seen: SeenImages | None = None
    """What an earlier run saw: kept out of a test split that the source itself sets aside."""
    restored: bool = False
    """Divided as the run saw them, because the data has changed since."""

    @classmethod
    def of(cls, source: Source, config: DataConfig) -> Splits:
        """The splits that the source sets aside; those that it does not are carved from its training images."""
        labelled = source.class_names != UNLABELLED
        check(source.train.labels, source.class_names, source.name, whole=labelled)
        train, validation, test, sealed = source.train, source.validation, source.test, source.sealed
        if config.stage != "open" and sealed is None:
            train, sealed = seal(source)
        if test is None:
            rest, held = carve(_strata(train, config), _TEST_SHARE, config.split_seed, "test split")
            if not len(held):
                few = f"one picture{' a class' * labelled}"
                raise DataError(f"{source.name} has {few}, so none can be set aside for testing", "add pictures, or a test folder")
            train, test = train.select(rest), train.select(held)
        if validation is None:
            rest, held = carve(_strata(train, config), validation_share(config), config.split_seed, "validation split")
            train, validation = train.select(rest), train.select(held)
        return cls(source, train, validation, test, sealed, unused=train.select(np.arange(0)))

    def as_seen(self, seen: SeenImages, config: DataConfig) -> Splits:
        """The same with every image where the run saw it, where carving would now put one of them elsewhere."""
        source, pool = self.source, self.source.train
        codes = seen.split_codes(pool, source.where)
        carved = {"validation": source.validation is None, "test": source.test is None}
        misplaced = carved["validation"] and np.isin(self.validation.indices, pool.indices[codes == SeenAs.TRAIN]).any()
        misplaced |= carved["test"] and np.isin(self.test.indices, pool.indices[codes != SeenAs.NEW]).any()
        splits: dict[str, ImageSet] = {}
        if misplaced:
            seen.print_changes(codes, source)
            train = (codes == SeenAs.TRAIN) | ((codes == SeenAs.UNUSED) & (config.subset is None))
            masks = {"train": train, "validation": codes == SeenAs.VALIDATION, "test": codes == SeenAs.NEW}
            splits = {name: pool.select(np.flatnonzero(mask)) for name, mask in masks.items() if carved.get(name, True)}
        if not carved["validation"]:
            splits["validation"] = seen.without_seen(self.validation, source, "validation")
        return dataclasses.replace(self, seen=seen, restored=bool(misplaced), **splits)

    def limited_to(self, config: DataConfig) -> Splits:
        """The same with the subset of the training images that `config` asks for; restored splits have theirs already."""
        if config.subset is None or self.restored:
            return self
        total = len(self.train.indices)
        count = round(config.subset) if config.subset >= 1 else max(1, round(config.subset * total))
        chosen = balanced_positions(self.train.labels, count, config.split_seed if config.subset_seed is None else config.subset_seed)
        rest = np.setdiff1d(np.arange(total), chosen)
        return dataclasses.replace(self, train=self.train.select(chosen), unused=self.train.select(rest))

    def closed(self, name: str) -> ImageSet:
        """The test or the sealed images, which are looked at only now."""
        part = getattr(self, name)
        return self.seen.without_seen(part, self.source, name) if self.seen and name == "test" and self.source.test is not None else part


def _strata(part: ImageSet, config: DataConfig) -> np.ndarray:
    """What is carved by its share: each class, or all pictures alike."""
    return strata(part.labels) if config.split_by == "class" else np.zeros(len(part.indices), np.int64)


def training_images(source: Source, config: DataConfig) -> int:
    """How many are left to learn from, about: nothing is carved yet."""
    count = len(source.train.labels) * (1 - _TEST_SHARE * (source.test is None)) * (1 - SHARE * (config.stage != "open"))
    count *= 1 - validation_share(config) * (source.validation is None)
    subset = count if config.subset is None else config.subset if config.subset >= 1 else config.subset * count
    return round(min(count, subset))


def open_split(config: DataConfig, preprocess: Preprocess, split: str | None = None, seen: SeenImages | None = None) -> Split:
    """Images to score a model on: all of them, or one split. Nothing is set aside that the source does not set aside itself,
    unless such a split is asked for: then as a training would. `seen`: what the run that is scored saw.

    None: the test split of a set that has one, else its validation split, else all.
    """
    if split not in (None, *SPLITS):
        raise one_of("split", split, SPLITS)
    check_open(config, split or "all")
    source = open_source(config, training=False)
    own = {"train": source.train if len(source.train.labels) else None, "validation": source.validation, "test": source.test}
    present = {name: part for name, part in own.items() if part is not None}
    if split is None:
        split = next((name for name in ("test", "validation") if name in present), "all")
    if split == "all":
        part = ImageSet.concat(list(present.values()))
    elif split in ("test", "validation") and split in present:
        part = present[split]
    elif "train" not in present or (split == "validation" and not config.validation):
        raise DataError(f"{source.name} has no {split} images", "choose another --split, such as all")
    else:
        if config.on_bad_image == "skip":  # what a training skips is in none of its splits
            source = open_source(config)
        data = open_data(config, preprocess=preprocess, source=source, seen=seen)
        return data.open(split) if split in ("test", "sealed") else getattr(data, split)
    if seen is not None and seen.splits and split in ("test", "validation"):
        part = seen.without_seen(part, source, split)
    if not len(part.labels):
        raise DataError(f"{source.name} has no {split} images", "choose another --split, such as all")
    return _as_split(split, part, source, config, _preprocess(source, config, None, None, preprocess, part))


def _as_split(name: str, part: ImageSet, source: Source, config: DataConfig, preprocess: Preprocess) -> Split:
    if len(part.labels):
        check(part.labels, source.class_names, f"{source.name} ({name})", whole=False)
    return Split(
        name,
        part.reader,
        part.indices,
        part.labels,
        source.class_names,
        preprocess,
        flip=source.flip,
        photographs=source.native_size is None,
        on_bad_image=config.on_bad_image,
    )


def open_source(config: DataConfig, training: bool = True, labels: bool = True) -> Source:
    """The data set that `config` names, as its source gives it; not for `training`: it need not have what only a training needs.

    Without `labels`: any folder of pictures will do, and what comes out has none.
    """
    if labels:
        return open_kind(config, training)
    kind, rest = parse(config.name)
    if kind == "folder":
        return open_pictures(Path(rest).expanduser(), config.on_bad_image if training else None)
    source = open_kind(config, training)
    if config.stage != "open":  # which images are sealed is settled by class: it belongs to a named set as its test split does
        train, sealed = seal(source)
        source = dataclasses.replace(source, train=train, sealed=sealed)
    return unlabelled(source)


def _preprocess(
    source: Source,
    config: DataConfig,
    image_size: tuple[int, int] | int | None,
    channels: int | None,
    preprocess: Preprocess | None,
    train: ImageSet,
) -> Preprocess:
    changes: dict[str, Any] = {name: value for name in ("resize", "mean", "std") if (value := getattr(config, name)) is not None}
    if preprocess is not None:
        return dataclasses.replace(preprocess, **changes)
    size = (image_size, image_size) if isinstance(image_size, int) else image_size or source.native_size or PHOTOGRAPH_SIZE
    # Data that is already small is squashed, so that nothing of it is lost; photographs keep their shape.
    resize = "squash" if source.native_size else "short"
    base = Preprocess(size, channels or source.channels, resize=resize, interpolation="bilinear" if source.native_size else "bicubic")
    base = dataclasses.replace(base, **changes)
    if not (config.mean and config.std):
        mean, std = (source.mean, source.std) if source.mean and source.std else _statistics(train, base, config)
        base = dataclasses.replace(base, mean=config.mean or mean, std=config.std or std)
    return base


def _statistics(part: ImageSet, preprocess: Preprocess, config: DataConfig) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixels in [0, 1], over seeded training pictures."""
    chosen = generator(config.split_seed, "statistics").permutation(len(part.labels))[:_STATISTICS_IMAGES]
    total, squares, count = np.zeros(preprocess.channels), np.zeros(preprocess.channels), 0
    for position in np.sort(chosen):
        try:
            pixels = preprocess.pixels(part.reader.image(int(part.indices[position]))) / 255.0
        except DataError:
            if config.on_bad_image == "fail":
                raise
            continue
        total += pixels.sum((1, 2))
        squares += (pixels**2).sum((1, 2))
        count += pixels[0].size
    if not count:
        raise DataError("none of the pictures can be read", "check the files")
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    # A channel without any contrast must not be divided by nothing.
    return tuple(round(float(m), 4) for m in mean), tuple(round(float(s), 4) if s > 1e-3 else 1.0 for s in std)
