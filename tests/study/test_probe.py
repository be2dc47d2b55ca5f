from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.base.errors import DataError, UsageError
from vitral.config import DataConfig
from vitral.data.datasets import Data, open_data
from vitral.data.preprocess import Preprocess
from vitral.model.classifier import Classifier
from vitral.study.embed import embed_folder
from vitral.study.probe import Scaler, best_linear, best_neighbours, draw_shots, embed, probe


@pytest.fixture(scope="module")
def model() -> Classifier:
    from vitral.build import create

    torch.manual_seed(0)
    # Random weights, but large ones, and no class token: its features then differ from picture to picture.
    return create("digits", depth=1, pool="mean", class_token=False, initialisation="torch")


@pytest.fixture(scope="module")
def data(model: Classifier) -> Data:
    return open_data(DataConfig(name="digits"), preprocess=Preprocess.of(model))


def clusters(count: int, seed: int, spread: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Points around four far corners."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 4
    return np.eye(4, 6)[labels] * 3 + rng.normal(0, spread, (count, 6)) + 5, labels


@pytest.mark.parametrize("best", [best_linear, best_neighbours])
def test_separable_points_are_separated(best) -> None:
    (x, y), (judge, wanted), (test, labels) = clusters(40, 0), clusters(40, 1), clusters(400, 2)
    scaler = Scaler(x)
    predict, name = best(scaler(x), y, scaler(judge), wanted, 4)
    assert (predict(scaler(test)) == labels).mean() > 0.97 and name
    shuffled, _ = best(scaler(x), np.random.default_rng(0).permutation(y), scaler(judge), wanted, 4)
    assert (shuffled(scaler(test)) == labels).mean() < 0.8


def test_shots_are_balanced_and_drawn_anew() -> None:
    labels = np.arange(100) % 5
    first, second = draw_shots(labels, 3, 0), draw_shots(labels, 3, 1)
    assert np.bincount(labels[first]).tolist() == [3] * 5 and not np.array_equal(first, second)
    assert np.array_equal(first, draw_shots(labels, 3, 0))


def test_probe_of_a_random_model_beats_chance_and_more_shots_help(model: Classifier, data: Data) -> None:
    result = probe(model, data, shots=(1, 10, None), draws=3, quiet=True, name="random")
    few, ten, everything = result.rows
    assert few.pictures == 10 and ten.pictures == 100 and everything.pictures == len(data.train)
    assert 0.15 < few.linear.mean < ten.linear.mean < everything.linear.mean and everything.linear.mean > 0.5
    for row in result.rows:
        for score in (row.linear, row.neighbours):
            assert score.interval[0] <= score.mean <= score.interval[1] and score.interval[1] - score.interval[0] < 0.6
    assert everything.linear.over == "test pictures" and few.linear.over == "3 draws" and len(few.linear.chosen) == 3
    assert "10 a class" in result.text() and result.to_dict()["rows"][2]["shots"] is None


def test_test_split_stays_closed_until_all_is_chosen(model: Classifier, data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = open_data(DataConfig(name="digits"), preprocess=Preprocess.of(model))
    from vitral.study import probe as module

    def watched(*arguments):
        assert fresh.test_opened is None
        return best_linear(*arguments)

    monkeypatch.setattr(module, "best_linear", watched)
    probe(model, fresh, shots=(2,), draws=2, quiet=True)
    assert fresh.test_opened is not None


def test_refusals(model: Classifier, data: Data) -> None:
    with pytest.raises(UsageError, match="smallest class"):
        probe(model, data, shots=(5000,), quiet=True)
    with pytest.raises(UsageError, match="no interval"):
        probe(model, data, draws=1, quiet=True)
    without = open_data(DataConfig(name="digits", validation=0.0), preprocess=Preprocess.of(model))
    with pytest.raises(UsageError, match="no validation pictures"):
        probe(model, without, quiet=True)


def test_embed_reads_what_the_head_reads(model: Classifier, data: Data) -> None:
    features, labels = embed(model, data.validation, quiet=True, batch_size=50)
    assert features.shape == (len(data.validation), model.config.width) and np.array_equal(labels, data.validation.labels)
    with torch.no_grad():
        one = model.pooled(Preprocess.of(model).batch([data.validation.picture(3)])).numpy()
    assert np.allclose(features[3], one[0], atol=1e-5)
    rough, _ = embed(copy.deepcopy(model).bfloat16(), data.validation, quiet=True)
    assert np.abs(rough - features).max() < 0.1 * np.abs(features).max()


def test_embed_folder(model: Classifier, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "pictures" / "deep").mkdir(parents=True)
    for name in ("b.png", "a.png", "deep/c.png"):
        Image.fromarray(rng.integers(0, 255, (9, 12), np.uint8)).save(tmp_path / "pictures" / name)
    (tmp_path / "pictures" / "note.txt").write_text("no picture")
    written = embed_folder(model, tmp_path / "pictures", tmp_path / "features", batch_size=2, quiet=True)
    with np.load(written["path"]) as stored:
        assert stored["paths"].tolist() == ["a.png", "b.png", "deep/c.png"] and stored["features"].shape == (3, model.config.width)
        assert np.isfinite(stored["features"]).all() and not np.array_equal(stored["features"][0], stored["features"][1])
    half = embed_folder(copy.deepcopy(model).bfloat16(), tmp_path / "pictures", tmp_path / "half", quiet=True)
    with np.load(written["path"]) as stored, np.load(half["path"]) as rough:
        assert np.abs(rough["features"] - stored["features"]).max() < 0.1 * np.abs(stored["features"]).max()
    with pytest.raises(DataError, match="holds no pictures"):
        embed_folder(model, _empty(tmp_path), tmp_path / "x")
    with pytest.raises(DataError, match="not a folder"):
        embed_folder(model, tmp_path / "nowhere", tmp_path / "x")


def _empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_nothing_to_probe_with_is_refused(model: Classifier, data: Data, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no number of shots"):
        probe(model, data, shots=[], quiet=True)
    with pytest.raises(UsageError, match="a batch of 0 pictures"):
        probe(model, data, shots=[1], batch_size=0, quiet=True)
    Image.new("L", (8, 8)).save(tmp_path / "one.png")
    with pytest.raises(UsageError, match="a batch of 0 pictures"):
        embed_folder(model, tmp_path, tmp_path / "out.npz", batch_size=0)
    assert not (tmp_path / "out.npz").exists()
