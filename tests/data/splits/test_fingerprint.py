"""A split is known by the names, sizes and classes of its images, and by their bytes on request."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.config import DataConfig
from vitral.data.images.preprocess import Preprocess
from vitral.data.sources.protocol import ArrayReader, JoinedReader, ShardReader
from vitral.data.sources.torch_dataset import DatasetReader
from vitral.data.splits.fingerprint import fingerprint
from vitral.data.splits.open import open_data
from vitral.data.splits.split import Split


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


@pytest.mark.parametrize("kind", ["shards", "own", "arrays", "joined"])
def test_content_counts_for_every_kind_of_source(kind: str, tmp_path: Path) -> None:
    """One other pixel in one image, its name and size as before."""

    def source(pixel: int) -> str:
        images = [np.full((8, 8, 3), number, np.uint8) for number in range(4)]
        images[2][3, 3] = pixel
        if kind == "shards":
            with tarfile.open(tmp_path / "train.tar", "w") as tar:
                for number, image in enumerate(images):
                    content = io.BytesIO()
                    Image.fromarray(image).save(content, "BMP")
                    content.seek(0)
                    about = tarfile.TarInfo(f"{number}.bmp")
                    about.size = len(content.getvalue())
                    tar.addfile(about, content)
            starts = np.array([512 + number * 1024 for number in range(4)])
            reader = ShardReader([tmp_path / "train.tar"], np.zeros(4, int), starts, np.full(4, 246))
        elif kind == "own":
            reader = DatasetReader([(Image.fromarray(image), 0) for image in images], "own:list")
        else:
            reader = ArrayReader(np.stack(images).transpose(0, 3, 1, 2), "arrays")
        reader = JoinedReader([reader, reader]) if kind == "joined" else reader
        part = Split("train", reader, np.arange(4), np.zeros(4, np.int64), ("cat",), Preprocess((8, 8), 3))
        return fingerprint(part, content=True)

    assert source(1) == source(1) != source(2)
