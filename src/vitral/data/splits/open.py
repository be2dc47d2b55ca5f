"""Data sets ready for use: splits, statistics and what is recorded about them."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import DataError, MissingError, UnknownNameError, one_of
from vitral.base.origin import OWN
from vitral.config import DataConfig
from vitral.data.images.augment import Policy, policy
from vitral.data.images.preprocess import Preprocess
from vitral.data.keys import generator
from vitral.data.sources.catalogue import CATALOGUE
from vitral.data.sources.fetch import data_root, open_named
from vitral.data.sources.folders import open_folder, open_pictures
from vitral.data.sources.hub import open_hub
from vitral.data.sources.protocol import UNLABELLED, ImageSet, Source, unlabelled
from vitral.data.sources.shards import open_shards
from vitral.data.sources.tables import KINDS, open_labels
from vitral.data.splits.fingerprint import fingerprint
from vitral.data.splits.near_duplicates import copies
from vitral.data.splits.sealed import SHARE, check_open, seal, validation_share
from vitral.data.splits.seen import SeenImages
from vitral.data.splits.split import Split, carve, check, strata

TEST_SHARE = 0.2
"""Share of the pictures carved out for testing when the source has no test split."""
STATISTICS_IMAGES = 256
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
        source: Source,
        config: DataConfig,
        train: Split,
        validation: Split,
        closed: Mapping[str, Callable[[], Split]],
        unused: ImageSet,
    ) -> None:
        self.name, self.where, self.notes = source.name, source.where, source.notes
        self.class_names = source.class_names if source.class_names != UNLABELLED else ()
        self.config, self.preprocess = config, train.preprocess
        self.train, self.validation = train, validation
        self._closed, self._unused = closed, unused
        self._open: dict[str, Split] = {}
        self.copies: dict[str, int] = {}
        """How many pictures of each are copies of training pictures, byte for byte."""
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
            self._open[name] = self._closed[name]()
            self.copies[name] = copies(self.train, self._open[name])
            self.opened[name] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return self._open[name]

    def fingerprints(self) -> dict[str, str]:
        """What tells whether these are the images of another time, by split."""
        content = self.config.fingerprint == "content"
        return {split.name: fingerprint(split, self.where, content) for split in (self.train, self.validation)}

    def seen(self) -> dict[str, np.ndarray] | None:
        """What a run that learns from this writes down, so that its test split stays its own (see data/learnt.py).

        None: pictures that never change, those of a named set, or that have no names."""
        if self.name in CATALOGUE:
            return None
        parts = {split.name: ImageSet(split.reader, split.indices, split.labels) for split in (self.train, self.validation)}
        return SeenImages.of(parts | {"unused": self._unused}, self.where)

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
    learnt: SeenImages | None = None,
) -> Data:
    """Open the data set that `config` names; `source`: what it is opened from, where that has been done already; `learnt`: what the run
    saw that is judged on it, so that none of that is in its test split.

    What the model wants (`preprocess`, or a size and channels) decides how pictures come out; where nothing is said, the data
    set's own size, channels, mean and standard deviation. Fields of `config` (resize, mean, std) come before all of these.
    """
    source = source or open_source(config)
    labelled = source.class_names != UNLABELLED
    check(source.train.labels, source.class_names, source.name, whole=labelled)
    train, test, sealed = source.train, source.test, source.sealed
    if config.stage != "open" and sealed is None:
        train, sealed = seal(source)
    if test is None:
        kept, held = carve(_strata(train, config), TEST_SHARE, config.split_seed, "test split")
        if not len(held):
            few = f"one picture{' a class' * labelled}"
            raise DataError(f"{source.name} has {few}, so none can be set aside for testing", "add pictures, or a test folder")
        carved_test, train = train.some(held), train.some(kept)
        test = lambda: carved_test  # noqa: E731
    if source.validation is None:
        kept, held = carve(_strata(train, config), validation_share(config), config.split_seed, "validation split")
        validation, train = train.some(held), train.some(kept)
    else:
        validation = source.validation
    restored = False
    if learnt is not None and learnt.splits:
        train, validation, test, restored = _as_seen(learnt, source, config, train, validation, test)
    wanted = _preprocess(source, config, image_size, channels, preprocess, train)

    def split(name: str, part: ImageSet) -> Split:
        return _as_split(name, part, source, config, wanted)

    training = split("train", train)
    if config.subset is not None and not restored:
        count = round(config.subset) if config.subset >= 1 else max(1, round(config.subset * len(training)))
        training = training.first(count, config.split_seed if config.subset_seed is None else config.subset_seed)
    if not restored:
        check(training.labels, source.class_names, f"{source.name} (train)", whole=labelled)
    closed = {"test": lambda: split("test", test())} | ({"sealed": lambda: split("sealed", sealed)} if sealed is not None else {})
    if learnt is not None and source.test is None and learnt.unlike(training, source.where, config.fingerprint == "content"):
        raise learnt.refuse(source.name)
    unused = train.some(np.flatnonzero(~np.isin(train.indices, training.indices)))
    return Data(source, config, training, split("validation", validation), closed, unused)


def _as_seen(
    learnt: SeenImages, source: Source, config: DataConfig, train: ImageSet, validation: ImageSet, test: Callable[[], ImageSet]
) -> tuple[ImageSet, ImageSet, Callable[[], ImageSet], bool]:
    """Train, validation and test with what the run saw where it was then; and whether that had to be changed."""
    pool, given, carved = source.train, source.test, source.test is None
    seen = learnt.recall(pool, source.where)
    misplaced = bool(source.validation is None and np.isin(validation.indices, pool.indices[seen == 0]).any())
    misplaced |= bool(carved and np.isin(test().indices, pool.indices[seen >= 0]).any())
    if misplaced:
        learnt.print_changes(seen, source.name, carved)
        train = pool.some(np.flatnonzero((seen == 0) | ((seen == 2) & (config.subset is None))))
        new = pool.some(np.flatnonzero(seen < 0))
    if source.validation is not None:
        validation = learnt.without_seen(source.validation, source.where, pool, "validation", source.name)
    elif misplaced:
        validation = pool.some(np.flatnonzero(seen == 1))
    if given is not None:
        return train, validation, lambda: learnt.without_seen(given(), source.where, pool, "test", source.name), misplaced
    return train, validation, (lambda: new) if misplaced else test, misplaced


def _strata(part: ImageSet, config: DataConfig) -> np.ndarray:
    """What is carved by its share: each class, or all pictures alike."""
    return strata(part.labels) if config.split_by == "class" else np.zeros(len(part.indices), np.int64)


def training_images(source: Source, config: DataConfig) -> int:
    """How many are left to learn from, about: nothing is carved yet."""
    count = len(source.train.labels) * (1 - TEST_SHARE * (source.test is None)) * (1 - SHARE * (config.stage != "open"))
    count *= 1 - validation_share(config) * (source.validation is None)
    wanted = count if config.subset is None else config.subset if config.subset >= 1 else config.subset * count
    return round(min(count, wanted))


def open_split(config: DataConfig, preprocess: Preprocess, split: str | None = None, learnt: SeenImages | None = None) -> Split:
    """Images to score a model on: all of them, or one split. Nothing is set aside that the source does not set aside itself,
    unless such a split is asked for: then as a training would; `learnt`: as the run had them that is scored.

    None: the test split of a set that has one, else its validation split, else all.
    """
    if split not in (None, *SPLITS):
        raise one_of("split", split, SPLITS)
    check_open(config, split or "all")
    source = open_source(config, training=False)
    has = {"train": source.train if len(source.train.labels) else None, "validation": source.validation}
    if split is None:
        split = "test" if source.test is not None else "validation" if source.validation is not None else "all"
    if split == "all":
        part = ImageSet.joined([part for part in (*has.values(), source.test() if source.test else None) if part is not None])
    elif split == "test" and source.test is not None:
        part = source.test()
    elif split == "validation" and source.validation is not None:
        part = source.validation
    elif has["train"] is None or (split == "validation" and not config.validation):
        raise DataError(f"{source.name} has no {split} images", "choose another --split, such as all")
    else:
        if config.on_bad_image == "skip":  # what a training passes over is in none of its splits
            source = open_source(config)
        data = open_data(config, preprocess=preprocess, source=source, learnt=learnt)
        return data.open(split) if split in ("test", "sealed") else getattr(data, split)
    if learnt is not None and learnt.splits and split in ("test", "validation"):
        part = learnt.without_seen(part, source.where, source.train, split, source.name)
    if not len(part.labels):
        raise DataError(f"{source.name} has no {split} images", "choose another --split, such as all")
    return _as_split(split, part, source, config, _preprocess(source, config, None, None, preprocess, part))


def _as_split(name: str, part: ImageSet, source: Source, config: DataConfig, wanted: Preprocess) -> Split:
    if len(part.labels):
        check(part.labels, source.class_names, f"{source.name} ({name})", whole=False)
    photographs = source.native_size is None
    return Split(name, part.reader, part.indices, part.labels, source.class_names, wanted, source.flip, photographs, config.on_bad_image)


def open_source(config: DataConfig, training: bool = True, labels: bool = True) -> Source:
    """The data set that `config` names, as its source gives it; not for `training`: it need not have what only a training needs.

    Without `labels`: any folder of pictures will do, and what comes out has none.
    """
    if not labels:
        kind, _, rest = config.name.partition(":")
        if kind == "folder" and rest:
            return open_pictures(Path(rest).expanduser(), config.on_bad_image if training else None)
        source = open_source(config, training)
        if config.stage != "open":  # which pictures are sealed belongs to a named set like its test split: it is settled by class
            train, sealed = seal(source)
            source = dataclasses.replace(source, train=train, sealed=sealed)
        return unlabelled(source)
    kind, _, rest = config.name.partition(":")
    if kind == "folder" and rest:
        return open_folder(Path(rest).expanduser(), config.on_bad_image, training=training)
    if kind in KINDS and rest:
        return open_labels(kind, Path(rest).expanduser(), config.on_bad_image, training=training)
    if kind == "hf" and rest:
        return open_hub(rest)
    if kind == "webdataset" and rest:
        return open_shards(rest)
    check_name(config.name)
    return open_named(CATALOGUE[config.name], data_root(config.root), config.on_bad_image)


def check_name(name: str) -> None:
    """Refuse what names no data, before anything is opened or fetched."""
    kind, _, rest = name.partition(":")
    if kind == OWN and rest:
        raise DataError(f"{name} was given by a program, and only that program has it", "give it again: vitral.fit(…, data=…)")
    if kind in ("folder", *KINDS) and rest and not Path(rest).expanduser().exists():
        wanted = "a folder with one folder of pictures per class" if kind == "folder" else f"a {kind} file with the columns path and label"
        raise MissingError(f"{rest} does not exist", f"name {wanted}")
    if name in CATALOGUE or (kind in ("folder", *KINDS, "hf", "webdataset") and rest):
        return
    if Path(name).is_dir():
        raise UnknownNameError(f"{name} is a folder, not the name of a data set", f"write folder:{name}")
    raise one_of("data set", name, [*CATALOGUE, "folder:PATH", "csv:FILE", "parquet:FILE", "hf:NAME", "webdataset:PATTERN"])


def _preprocess(
    source: Source,
    config: DataConfig,
    image_size: tuple[int, int] | int | None,
    channels: int | None,
    given: Preprocess | None,
    train: ImageSet,
) -> Preprocess:
    if given is None:
        size = (image_size, image_size) if isinstance(image_size, int) else image_size or source.native_size or PHOTOGRAPH_SIZE
        # Data that is already small is squashed, so that nothing of it is lost; photographs keep their shape.
        resize = "squash" if source.native_size else "short"
        base = Preprocess(size, channels or source.channels, resize=resize, interpolation="bilinear" if source.native_size else "bicubic")
    else:
        base = given
    changes: dict[str, Any] = {name: value for name in ("resize", "mean", "std") if (value := getattr(config, name)) is not None}
    base = dataclasses.replace(base, **changes)
    if given is None and not (config.mean and config.std):
        mean, std = (source.mean, source.std) if source.mean and source.std else statistics(train, base, config)
        base = dataclasses.replace(base, mean=config.mean or mean, std=config.std or std)
    return base


def statistics(part: ImageSet, preprocess: Preprocess, config: DataConfig) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixels in [0, 1], over seeded training pictures."""
    chosen = generator(config.split_seed, "statistics").permutation(len(part.labels))[:STATISTICS_IMAGES]
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
