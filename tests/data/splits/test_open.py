"""Opening: splits, statistics, the closed test set, and what is recorded."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import DataError, UsageError
from vitral.config import DataConfig
from vitral.data.images.preprocess import Preprocess
from vitral.data.splits.open import open_data, open_source


def test_digits_have_a_fixed_split() -> None:
    data = open_data(DataConfig(name="digits"))
    assert len(data.train) + len(data.validation) == 1437 and len(data.test()) == 360
    assert data.image_size == (8, 8) and data.channels == 1 and not data.train.flip
    other = open_data(DataConfig(name="digits", split_seed=9))
    assert np.array_equal(data.test().indices, other.test().indices)
    assert not np.array_equal(data.train.indices, other.train.indices)
    parts = [set(split.indices.tolist()) for split in (data.train, data.validation, data.test())]
    assert len(set.union(*parts)) == sum(map(len, parts)) == 1797
    whole = np.concatenate([data.train.pixels(), data.validation.pixels()]) / 255
    assert whole.mean() == pytest.approx(data.mean[0], abs=1e-3) and whole.std() == pytest.approx(data.std[0], abs=1e-3)


def test_test_is_closed_until_it_is_opened() -> None:
    data = open_data(DataConfig(name="digits"))
    assert data.opened == data.describe()["opened"] == {}
    first = data.test()
    assert data.test() is first
    assert data.opened["test"] and data.describe()["opened"] == data.opened


def test_subsets_are_counts_or_shares_and_nested() -> None:
    sets = [set(open_data(DataConfig(name="digits", subset=size)).train.indices.tolist()) for size in (10, 100, 0.5, None)]
    assert [len(s) for s in sets][:2] == [10, 100]
    assert len(sets[2]) == round(len(sets[3]) / 2)
    assert sets[0] < sets[1] < sets[2] < sets[3]
    tens = open_data(DataConfig(name="digits", subset=100)).train.counts()
    assert tens.min() >= 9 and tens.max() <= 11


def test_one_picture_is_refused() -> None:
    with pytest.raises(DataError, match="one picture"):
        open_data(DataConfig(name="digits", subset=1))


def test_folder_without_splits(photographs: Path) -> None:
    data = open_data(DataConfig(name=f"folder:{photographs}"), image_size=(20, 30))
    assert data.class_names == ("cat", "dog") and data.channels == 3 and data.train.photographs
    counts = [data.train.counts(), data.validation.counts(), data.test().counts()]
    assert np.sum(counts, 0).tolist() == [12, 6] and all(count.min() >= 1 for count in counts)
    names = [{split.where(i) for i in range(len(split))} for split in (data.train, data.validation, data.test())]
    assert len(set.union(*names)) == 18
    assert data.train.pixels().shape == (len(data.train), 3, 20, 30)
    facts = data.describe()
    assert facts["unbalanced"] and facts["imbalance"] >= 2
    pixels = data.train.pixels().numpy() / 255
    assert data.mean == pytest.approx(pixels.mean((0, 2, 3)), abs=1e-3)
    assert data.std == pytest.approx(pixels.std((0, 2, 3)), abs=1e-3)


def test_statistics_are_of_the_training_pictures_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(10):
            Image.new("L", (8, 8), 25 * number if name == "a" else 255 - 2 * number**2).save(tmp_path / name / f"{number}.png")
    data = open_data(DataConfig(name=f"folder:{tmp_path}", validation=0.2))
    own, others = data.train.pixels() / 255, [split.pixels() / 255 for split in (data.validation, data.test())]
    assert data.mean[0] == pytest.approx(own.mean().item(), abs=1e-4)
    assert data.std[0] == pytest.approx(own.std(unbiased=False).item(), abs=1e-4)
    assert all(abs(other.mean() - own.mean()) > 0.01 for other in others), "else this proves nothing"


def test_origin_comes_before_the_set_and_config_before_both() -> None:
    wanted = Preprocess((16, 16), 3, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7), crop=0.9)
    assert open_data(DataConfig(name="digits"), preprocess=wanted).preprocess == wanted
    mixed = open_data(DataConfig(name="digits", mean=(0.9, 0.9, 0.9), resize="squash"), preprocess=wanted).preprocess
    assert mixed == dataclasses.replace(wanted, mean=(0.9, 0.9, 0.9), resize="squash")
    grown = open_data(DataConfig(name="digits"), image_size=16, channels=3)
    assert grown.train.pixels().shape[1:] == (3, 16, 16) and len(grown.mean) == 3


def test_unknown_name() -> None:
    with pytest.raises(UsageError, match=r"'mnst'.*mnist"):
        open_data(DataConfig(name="mnst"))


def test_any_channels_from_arrays(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(5):
            np.save(tmp_path / name / f"{number}.npy", random.integers(0, 256, (12, 12, 6), dtype=np.uint8))
    data = open_data(DataConfig(name=f"folder:{tmp_path}"))
    assert data.channels == 6 and data.image_size == (12, 12) and len(data.mean) == 6
    assert data.train.picture(0).mode == "RGB"


def test_flat_pictures_do_not_divide_by_nothing(tmp_path: Path) -> None:
    for name, grey in (("a", 50), ("b", 50)):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.new("L", (8, 8), grey).save(tmp_path / name / f"{number}.png")
    assert open_data(DataConfig(name=f"folder:{tmp_path}")).std == (1.0,)


def test_one_picture_a_class_leaves_none_for_testing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "one.png")
    with pytest.raises(DataError, match="one picture"):
        open_data(DataConfig(name=f"folder:{tmp_path}"))
    alone = DataConfig(name=f"folder:{tmp_path / 'a'}", split_by="chance")
    with pytest.raises(DataError, match="one picture"):
        open_data(alone, source=open_source(alone, labels=False))


def test_a_folder_without_its_prefix_is_told_how_to_be_named(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyError, match="folder:photos"):
        open_data(DataConfig(name="photos"))
