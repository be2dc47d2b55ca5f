"""Feature vectors of a folder, in one file."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.base.errors import DataError, UsageError
from vitral.build import create
from vitral.model.classifier import Classifier
from vitral.study.embed import Embedding, embed, label_of, nearest


@pytest.fixture(scope="module")
def model() -> Classifier:
    torch.manual_seed(0)
    return create("digits", depth=1, pool="mean", class_token=False, initialisation="torch")


def test_the_features_of_a_folder(model: Classifier, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "pictures" / "deep").mkdir(parents=True)
    for name in ("b.png", "a.png", "deep/c.png"):
        Image.fromarray(rng.integers(0, 255, (9, 12), np.uint8)).save(tmp_path / "pictures" / name)
    (tmp_path / "pictures" / "note.txt").write_text("no picture")
    written = embed(model, tmp_path / "pictures", batch_size=2, quiet=True).write(tmp_path / "features")
    with np.load(written) as stored:
        assert stored["paths"].tolist() == ["a.png", "b.png", "deep/c.png"] and stored["features"].shape == (3, model.config.width)
        assert np.isfinite(stored["features"]).all() and not np.array_equal(stored["features"][0], stored["features"][1])
    half = embed(copy.deepcopy(model).bfloat16(), tmp_path / "pictures", quiet=True).write(tmp_path / "half")
    with np.load(written) as stored, np.load(half) as rough:
        assert np.abs(rough["features"] - stored["features"]).max() < 0.1 * np.abs(stored["features"]).max()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="pictures"):
        embed(model, tmp_path / "empty")
    with pytest.raises(DataError, match="folder"):
        embed(model, tmp_path / "nowhere")


def test_labels_are_the_class_folders(model: Classifier, tmp_path: Path) -> None:
    assert [label_of(path) for path in ("a.png", "cat/a.png", "train/cat/a.png", "train/a.png", "cat/deep/a.png")] == [
        *("", "cat", "cat", "train", "cat"),
    ]
    for name in ("cat/a.png", "cat/b.png", "dog/c.png"):
        (tmp_path / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), len(name) * 9).save(tmp_path / "pictures" / name)
    found = embed(model, tmp_path / "pictures", thumbnails=True, quiet=True)
    assert found.labels == ("cat", "cat", "dog") and sorted(found.thumbnails) == [0, 1, 2]
    with np.load(found.write(tmp_path / "f.npz")) as stored:
        assert stored["labels"].tolist() == ["cat", "cat", "dog"]
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = parquet.read_table(found.write(tmp_path / "f.parquet")).to_pylist()
    assert [row["path"] for row in rows] == list(found.paths) and np.allclose(rows[0]["features"], found.features[0])


def points(features: np.ndarray, labels: str) -> Embedding:
    return Embedding(features, tuple(f"{number}.png" for number in range(len(features))), tuple(labels), Path())


def test_neighbours_and_near_duplicates_are_those_of_every_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(embed.__globals__, "CHUNK", 7)  # several blocks
    draw = np.random.default_rng(0)
    features = draw.normal(size=(40, 6)) + 10  # far from the origin: only after the mean is taken off do they differ
    features[33] = features[4] + 1e-3
    found = points(features, "ab" * 20)
    centred = features - features.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    likeness = centred @ centred.T
    np.fill_diagonal(likeness, -2)
    who, near = found.neighbours(3)
    assert np.array_equal(who, np.argsort(-likeness, axis=1, kind="stable")[:, :3]) and np.allclose(near[:, 0], likeness.max(axis=1))
    pairs = found.near_duplicates(0.8)
    assert {(a, b) for a, b, _ in pairs} == {(a, b) for a, b in np.argwhere(likeness >= 0.8).tolist() if a < b}
    assert pairs[0][:2] == (4, 33) and [share for *_, share in pairs] == sorted((share for *_, share in pairs), reverse=True)
    same = np.array(list("ab" * 20))
    assert found.agreement == pytest.approx((same == same[likeness.argmax(axis=1)]).mean())
    assert points(features, "a" * 40).agreement is None


def test_a_map_keeps_groups_apart_and_is_the_same_each_time() -> None:
    draw = np.random.default_rng(1)
    features = np.repeat(np.eye(3, 8) * 6, 12, axis=0) + draw.normal(size=(36, 8))
    for kind in ("pca", "tsne"):
        places = points(features, "abc" * 12).map(kind)
        assert places.shape == (36, 2) and np.array_equal(places, points(features, "abc" * 12).map(kind))
        middles = places.reshape(3, 12, 2).mean(axis=1)
        spread = np.linalg.norm(places.reshape(3, 12, 2) - middles[:, None], axis=2).mean()
        assert min(np.linalg.norm(middles[a] - middles[b]) for a, b in ((0, 1), (0, 2), (1, 2))) > 2 * spread
    assert points(features[:2], "ab").map().shape == (2, 2)


def test_an_empty_batch_is_refused(model: Classifier, tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "one.png")
    with pytest.raises(UsageError, match="batch"):
        embed(model, tmp_path, batch_size=0)


def test_the_nearest_of_some_are_those_of_all(model: Classifier, tmp_path: Path) -> None:
    pictures = {number: Image.effect_noise((20, 20), 10.0 * number + 5).convert("RGB") for number in range(6)}
    pictures[5] = pictures[0].copy()

    def picture(number: int) -> Image.Image:
        if number == 3:
            raise FileNotFoundError(number)
        return pictures[number]

    found = nearest(model, picture, [0, 3], range(6), count=2, batch_size=2)
    assert list(found) == [0] and found[0][0] == (5, pytest.approx(1, abs=1e-5)) and found[0][1][0] not in (0, 3, 5)
    among = nearest(model, picture, [0, 1], [2, 4], count=3)
    assert {number: {other for other, _ in near} for number, near in among.items()} == {0: {2, 4}, 1: {2, 4}}
