"""A probe of a random model on digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.base.errors import DataError, UsageError
from vitral.build import create
from vitral.config import DataConfig
from vitral.data.images.preprocess import Preprocess
from vitral.data.splits.open import Data, open_data
from vitral.model.classifier import Classifier
from vitral.study.probe import draw_shots, probe


@pytest.fixture(scope="module")
def model() -> Classifier:
    torch.manual_seed(0)
    # Random weights, but large ones, and no class token: its features then differ from image to image.
    return create("digits", depth=1, pool="mean", class_token=False, initialisation="torch")


@pytest.fixture(scope="module")
def data(model: Classifier) -> Data:
    return open_data(DataConfig(name="digits"), preprocess=Preprocess.of(model))


def test_a_damaged_file_is_passed_over_where_that_is_asked_for(model: Classifier, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for number in range(40):
        (tmp_path / str(number % 2)).mkdir(exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (8, 8), np.uint8)).save(tmp_path / str(number % 2) / f"{number}.png")
    names = {(place := tmp_path / str(number % 2) / f"{number}.png"): place.read_bytes() for number in range(12)}
    for path, content in names.items():
        path.write_bytes(content[:-30])  # its header is whole: it is found when it is its turn
    with pytest.raises(DataError, match="--on-bad-image skip"):
        probe(model, f"folder:{tmp_path}", shots=[None], device="cpu", quiet=True)
    result = probe(model, f"folder:{tmp_path}", shots=[2, None], device="cpu", quiet=True, on_bad_image="skip")
    whole = open_data(DataConfig(name=f"folder:{tmp_path}"), preprocess=Preprocess.of(model)).train
    good = sum(Path(whole.where(place)) not in names for place in range(len(whole)))
    assert [row["pictures"] for row in result.rows] == [4, good]


def test_shots_are_balanced_and_drawn_anew() -> None:
    labels = np.arange(100) % 5
    first, second = draw_shots(labels, 3, 0), draw_shots(labels, 3, 1)
    assert np.bincount(labels[first]).tolist() == [3] * 5 and not np.array_equal(first, second)
    assert np.array_equal(first, draw_shots(labels, 3, 0))


def test_probe_of_a_random_model_beats_chance_and_more_shots_help(model: Classifier, data: Data) -> None:
    result = probe(model, data, name="random", shots=(1, 10, None), draws=3, quiet=True)
    few, ten, everything = result.rows
    assert few["pictures"] == 10 and ten["pictures"] == 100 and everything["pictures"] == len(data.train)
    assert 0.15 < few["linear"]["mean"] < ten["linear"]["mean"] < everything["linear"]["mean"] and everything["linear"]["mean"] > 0.5
    for row in result.rows:
        for score in (row["linear"], row["neighbours"]):
            low, high = score["interval"]
            assert low <= score["mean"] <= high and high - low < 0.6
    assert (
        everything["linear"]["over"] == "test pictures"
        and few["linear"]["over"].startswith("3 draws")
        and len(few["linear"]["chosen"]) == 3
    )
    assert "10 a class" in result.table and everything["shots"] is None and "features of random reach" in result.conclusion


def test_features_of_several_blocks_are_read_side_by_side(data: Data) -> None:
    deep = create("digits", depth=3, pool="mean", class_token=False, initialisation="torch")
    result = probe(deep, data, name="deep", shots=(10,), draws=2, blocks=2, quiet=True)
    assert result.values["width"] == 2 * deep.config.width and "features of the last 2 blocks of deep" in result.conclusion
    with pytest.raises(UsageError, match="block"):
        probe(deep, data, shots=(1,), blocks=2, quiet=True, save="anywhere")


def test_test_split_stays_closed_until_all_is_chosen(model: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = open_data(DataConfig(name="digits"), preprocess=Preprocess.of(model))
    real, opened = fresh.test, []
    seen = {"fits": 0}
    for name in ("fit_linear", "fit_neighbours"):
        fit = probe.__globals__[name]

        def watched(*arguments, fit=fit):
            assert not opened
            seen["fits"] += 1
            return fit(*arguments)

        monkeypatch.setitem(probe.__globals__, name, watched)
    monkeypatch.setattr(fresh, "test", lambda: opened.append(1) or real())
    probe(model, fresh, shots=(2,), draws=2, quiet=True)
    assert seen["fits"] == 4 and opened == [1]


def test_shots_are_counted_again_once_the_pictures_are_read(model: Classifier, data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    read = probe.__globals__["read_features"]

    def some_unreadable(*arguments, **settings):
        features, labels = read(*arguments, **settings)
        left = (labels != 3) | (labels.eq(3).cumsum(0) <= 4)  # of class 3 four pictures could be read
        return features[left], labels[left]

    monkeypatch.setitem(probe.__globals__, "read_features", some_unreadable)
    with pytest.raises(UsageError, match="--shots"):
        probe(model, data, shots=(5,), draws=2, quiet=True)


def test_refusals(model: Classifier, data: Data) -> None:
    with pytest.raises(UsageError, match="smallest"):
        probe(model, data, shots=(5000,), quiet=True)
    with pytest.raises(UsageError, match="0 pictures"):
        probe(model, data, shots=(0,), quiet=True)
    with pytest.raises(UsageError, match="interval"):
        probe(model, data, draws=1, quiet=True)
    with pytest.raises(UsageError, match="shots"):
        probe(model, data, shots=[], quiet=True)
    with pytest.raises(UsageError, match="batch"):
        probe(model, data, shots=[1], batch_size=0, quiet=True)
    without = open_data(DataConfig(name="digits", validation=0.0), preprocess=Preprocess.of(model))
    with pytest.raises(UsageError, match="validation"):
        probe(model, without, quiet=True)
