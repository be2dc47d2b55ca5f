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
from vitral.study.embed import embed_folder


@pytest.fixture(scope="module")
def model() -> Classifier:
    torch.manual_seed(0)
    return create("digits", depth=1, pool="mean", class_token=False, initialisation="torch")


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
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no pictures"):
        embed_folder(model, tmp_path / "empty", tmp_path / "x")
    with pytest.raises(DataError, match="not a folder"):
        embed_folder(model, tmp_path / "nowhere", tmp_path / "x")


def test_an_empty_batch_is_refused(model: Classifier, tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "one.png")
    with pytest.raises(UsageError, match="a batch of 0 pictures"):
        embed_folder(model, tmp_path, tmp_path / "out.npz", batch_size=0)
    assert not (tmp_path / "out.npz").exists()
