"""The published layout, halved in size; of two classes that share a name each gets a number."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from vitral.base.errors import DataError
from vitral.data.sources.small_sets import tiny_folder


def test_the_published_folder_is_read_and_halved(tmp_path: Path) -> None:
    (tmp_path / "wnids.txt").write_text("n2\nn1\nn3\n")
    (tmp_path / "words.txt").write_text("n1\tcat, feline\nn2\tdog\nn3\tcat, other\n")
    for name, level in (("n1", 10), ("n2", 200), ("n3", 90)):
        where = tmp_path / "train" / name / "images"
        where.mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (64, 64), (level,) * 3).save(where / f"{name}_{number}.JPEG")
    (tmp_path / "val" / "images").mkdir(parents=True)
    Image.new("RGB", (64, 64), (10, 10, 10)).save(tmp_path / "val" / "images" / "val_0.JPEG")
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn1\t0\t0\t62\t62\n")
    arrays, names = tiny_folder(tmp_path)
    assert (
        names == ("dog", "cat (1)", "cat (2)") and arrays["train"][1].tolist() == [0, 0, 1, 1, 2, 2] and arrays["test"][1].tolist() == [1]
    )
    assert arrays["train"][0].shape == (6, 3, 32, 32) and abs(int(arrays["train"][0][0, 0, 0, 0]) - 200) < 4
    (tmp_path / "wnids.txt").unlink()
    with pytest.raises(DataError, match="tiny-imagenet-200"):
        tiny_folder(tmp_path)
