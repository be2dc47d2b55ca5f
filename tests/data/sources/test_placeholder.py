"""A named set that is not here, as far as the catalogue knows it."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from vitral.base.errors import DataError
from vitral.config import DataConfig
from vitral.data.sources import fetch as fetching
from vitral.data.sources.catalogue import CATALOGUE
from vitral.data.sources.placeholder import PHOTOGRAPH, stand_in
from vitral.data.sources.protocol import Source
from vitral.data.splits.open import open_data


def made_up(name: str, root: Path) -> Source:
    source = stand_in(DataConfig(name=name, root=str(root)))
    assert source is not None
    return source


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name != "digits"])
def test_it_has_what_the_catalogue_knows(name: str, tmp_path: Path) -> None:
    entry, source = CATALOGUE[name], made_up(name, tmp_path)
    assert (len(source.train.labels), len(source.class_names), source.native_size) == (entry.train, entry.classes, entry.native_size)
    assert source.test is not None and len(source.test.labels) == entry.test
    assert len(np.unique(source.train.labels)) == entry.classes
    size = np.asarray(pickle.loads(pickle.dumps(source.train.reader)).image(entry.train - 1)).shape
    assert size[:2] == (entry.native_size or PHOTOGRAPH) and (size[2:] or (1,)) == (entry.channels,)
    assert not list(tmp_path.iterdir())
    (note,) = source.notes
    assert note.startswith(f"{name} is not here: planned by the catalogue ({entry.train:,} pictures, {entry.classes} classes")
    assert ("put a copy into" if entry.providers == ("local",) else f"a training fetches about {entry.megabytes:,} MB") in note
    assert ("made-up photographs of 500×375" in note) == (entry.native_size is None)


def test_a_validation_split_of_its_publishers_is_kept(tmp_path: Path) -> None:
    data = open_data(DataConfig(name="flowers102", root=str(tmp_path)), source=made_up("flowers102", tmp_path))
    assert (len(data.train), len(data.validation)) == (1020, 1020)
    data = open_data(DataConfig(name="cifar10", validation=0.1), source=made_up("cifar10", tmp_path))
    assert (len(data.train), len(data.validation)) == (45_000, 5_000) and tuple(data.train.pixels().shape) == (45_000, 3, 32, 32)


def test_what_is_here_is_opened_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stand_in(DataConfig(name="digits")) is None and stand_in(DataConfig(name=f"folder:{tmp_path}")) is None
    (tmp_path / "imagenet" / "train").mkdir(parents=True)
    assert stand_in(DataConfig(name="imagenet", root=str(tmp_path))) is None
    monkeypatch.setattr(fetching, "has_arrays", lambda entry, root: True)
    assert stand_in(DataConfig(name="mnist", root=str(tmp_path))) is None


def test_of_the_hub_nothing_is_known_before_it_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = pytest.importorskip("datasets.config")
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")
    with pytest.raises(DataError, match="vitral data get hf:them/TwoCats"):
        stand_in(DataConfig(name="hf:them/TwoCats"))
    (tmp_path / "cache" / "them___two_cats").mkdir(parents=True)
    assert stand_in(DataConfig(name="hf:them/TwoCats")) is None
    assert stand_in(DataConfig(name=f"hf:{tmp_path}")) is None
