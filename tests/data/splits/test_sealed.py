"""What a stage may see: which pictures are sealed, and that nothing but a confirming run opens them."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from vitral.base.errors import ConfigError, DataError
from vitral.config import DataConfig
from vitral.data.images.preprocess import Preprocess
from vitral.data.sources.protocol import ArrayReader, ImageSet, Source
from vitral.data.splits.open import open_data, open_split, training_images
from vitral.data.splits.sealed import check_seen, seal

PREPROCESS = Preprocess((8, 8), 1)


def like_cifar10() -> Source:
    """CIFAR-10's shape: 5,000 pictures of each class, in any order; the pixels do not matter."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
    part = ImageSet.whole(ArrayReader(np.zeros((50_000, 3, 1, 1), np.uint8), "cifar10"), labels)
    test = ImageSet.whole(ArrayReader(np.ones((10, 3, 1, 1), np.uint8), "cifar10 test"), np.arange(10))
    names = tuple("abcdefghij")
    return Source("cifar10", names, part, "", test=test, native_size=(1, 1), mean=(0.5,) * 3, std=(0.5,) * 3)


def test_choosing_sees_40000_and_5000_and_confirming_45000() -> None:
    source = like_cifar10()
    choose = open_data(DataConfig(name="cifar10", stage="choose", validation=0.1), source=source)
    confirm = open_data(DataConfig(name="cifar10", stage="confirm", validation=0.0), source=source)
    whole = open_data(DataConfig(name="cifar10", validation=0.0), source=source)
    assert (len(choose.train), len(choose.validation)) == (40_000, 5_000)
    assert (len(confirm.train), len(confirm.validation)) == (45_000, 0) and len(whole.train) == 50_000
    sealed = confirm.open("sealed")
    assert len(sealed) == 5_000 and sealed.counts().tolist() == [500] * 10
    parts = [set(split.indices.tolist()) for split in (choose.train, choose.validation, sealed)]
    assert len(set.union(*parts)) == 50_000 and set(confirm.train.indices) == parts[0] | parts[1]
    for config, count in ((choose.config, 40_000), (confirm.config, 45_000), (whole.config, 50_000)):
        assert training_images(source, config) == count


def test_which_pictures_are_sealed_is_fixed_for_good() -> None:
    """Another seed here would break the seal of every choice that was made before."""
    _, sealed = seal(like_cifar10())
    assert hashlib.sha256(sealed.indices.astype("<i8").tobytes()).hexdigest()[:16] == "3b45f55c1a11bc2c"
    other = open_data(DataConfig(name="digits", stage="confirm", split_seed=5)).open("sealed")
    assert np.array_equal(other.indices, open_data(DataConfig(name="digits", stage="confirm")).open("sealed").indices)


def test_what_stays_closed() -> None:
    choose, whole = (open_data(DataConfig(name="digits", stage=stage)) for stage in ("choose", "open"))
    for data, split in ((choose, "test"), (choose, "sealed"), (whole, "sealed")):
        with pytest.raises(DataError, match="closed"):
            data.open(split)
    assert choose.describe()["opened"] == {} and choose.describe()["stage"] == "choose"
    for stage, split in (("choose", "test"), ("choose", "all"), ("choose", None), ("choose", "sealed"), ("open", "sealed")):
        with pytest.raises(DataError, match="closed"):
            open_split(DataConfig(name="digits", stage=stage), PREPROCESS, split)
    opened = open_split(DataConfig(name="digits", stage="confirm"), PREPROCESS, "sealed")
    assert len(opened) == 144 and opened.name == "sealed"
    seen = open_split(DataConfig(name="digits", stage="choose"), PREPROCESS, "train")
    assert not set(seen.indices) & set(opened.indices)


def test_refused_before_anything_is_spent(photographs) -> None:
    with pytest.raises(ConfigError, match="validation"):
        DataConfig(name="digits", stage="choose", validation=0.0)
    with pytest.raises(ConfigError, match="sealed"):
        open_data(DataConfig(name=f"folder:{photographs}", stage="confirm"))


def test_weights_that_may_know_the_sealed_pictures_are_refused() -> None:
    config = DataConfig(name="digits", stage="confirm")
    with pytest.raises(ConfigError, match="stage = open"):
        check_seen({"name": "digits"}, config, "the teacher")
    check_seen({"name": "digits", "stage": "confirm"}, config, "the teacher")
    check_seen({"name": "mnist"}, config, "the teacher")
    check_seen({"name": "digits", "stage": "confirm"}, DataConfig(name="digits"), "the teacher")
