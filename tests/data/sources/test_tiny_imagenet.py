"""Both layouts give the same pictures, labels and names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import DataError
from vitral.data.sources.tiny_imagenet import COLUMNS, ROWS, tiny_folder


def test_tiles_are_cut_row_by_row(tmp_path: Path) -> None:
    draw, tiles = np.random.default_rng(0), []
    for number in range(3):
        squares = draw.integers(0, 256, (ROWS, COLUMNS, 3), np.uint8)
        Image.fromarray(squares.repeat(32, 0).repeat(32, 1)).save(tmp_path / f"{number:02d}.webp", lossless=True)
        tiles.append(squares.reshape(-1, 3))
    np.save(tmp_path / "labels.npy", np.arange(3 * ROWS * COLUMNS) % 3)
    (tmp_path / "classes.json").write_text(json.dumps([["n1", "crane, bird"], ["n2", "crane, machine"], ["n3", "dog"]]))
    arrays, names = tiny_folder(tmp_path)
    assert names == ("crane (1)", "crane (2)", "dog")
    pixels, labels = arrays["train"]
    assert pixels.shape == (5000, 3, 32, 32) and len(arrays["test"][1]) == 10_000 and labels[4] == 1
    assert (pixels[:, :, 7, 9] == tiles[0]).all() and (arrays["test"][0][5000:, :, 0, 0] == tiles[2]).all()


def test_the_published_folder_is_read_and_halved(tmp_path: Path) -> None:
    (tmp_path / "wnids.txt").write_text("n2\nn1\n")
    (tmp_path / "words.txt").write_text("n1\tcat, feline\nn2\tdog\nn3\tother\n")
    for name, level in (("n1", 10), ("n2", 200)):
        where = tmp_path / "train" / name / "images"
        where.mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (64, 64), (level,) * 3).save(where / f"{name}_{number}.JPEG")
    (tmp_path / "val" / "images").mkdir(parents=True)
    Image.new("RGB", (64, 64), (10, 10, 10)).save(tmp_path / "val" / "images" / "val_0.JPEG")
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn1\t0\t0\t62\t62\n")
    arrays, names = tiny_folder(tmp_path)
    assert names == ("dog", "cat") and arrays["train"][1].tolist() == [0, 0, 1, 1] and arrays["test"][1].tolist() == [1]
    assert arrays["train"][0].shape == (4, 3, 32, 32) and abs(int(arrays["train"][0][0, 0, 0, 0]) - 200) < 4
    (tmp_path / "wnids.txt").unlink()
    with pytest.raises(DataError, match="tiny-imagenet-200"):
        tiny_folder(tmp_path)
