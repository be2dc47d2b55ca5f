"""A split is known by the names, sizes and classes of its images, and by their bytes on request."""

from __future__ import annotations

import shutil
from pathlib import Path

from PIL import Image

from vitral.config import DataConfig
from vitral.data.datasets import open_data
from vitral.data.fingerprint import fingerprint


def fill(folder: Path) -> Path:
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (30, 30), (number, label, 0)).save(folder / name / f"{number}.bmp")
    return folder


def prints(folder: Path, content: bool = False) -> tuple[str, str]:
    data = open_data(DataConfig(name=f"folder:{folder}"))
    return fingerprint(data.train, data.where, content), fingerprint(data.validation, data.where, content)


def test_the_same_set_elsewhere_is_the_same(tmp_path: Path) -> None:
    shutil.copytree(fill(tmp_path / "a"), tmp_path / "b")
    assert prints(tmp_path / "a") == prints(tmp_path / "b")
    assert len(set(prints(tmp_path / "a"))) == 2


def test_swapped_classes_and_replaced_files_are_seen(tmp_path: Path) -> None:
    before, with_content = prints(fill(tmp_path / "a")), prints(tmp_path / "a", content=True)
    for file in (tmp_path / "a" / "cat").iterdir():
        Image.new("RGB", (30, 30), "red").save(file)  # the same names and sizes
    assert prints(tmp_path / "a") == before
    assert prints(tmp_path / "a", content=True) != with_content
    for file in (tmp_path / "a" / "cat").iterdir():
        Image.new("RGB", (31, 31), "red").save(file)
    assert prints(tmp_path / "a") != before


def test_arrays_count_by_their_pixels() -> None:
    data = open_data(DataConfig(name="digits"))
    before = fingerprint(data.train)
    reader = data.train.reader
    reader.pixels = reader.pixels.copy()  # type: ignore[attr-defined]
    reader.pixels[data.train.indices[0]] ^= 1  # type: ignore[attr-defined]
    assert fingerprint(data.train) != before
