"""Sets of photographs in the layout of their publishers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

from vitral.config import DataConfig
from vitral.data.splits.open import open_data


def test_flowers_in_their_published_layout(tmp_path: Path) -> None:
    folder = tmp_path / "flowers-102"
    (folder / "jpg").mkdir(parents=True)
    for number in range(1, 13):
        Image.new("RGB", (80, 90), (number * 9, 0, 0)).save(folder / "jpg" / f"image_{number:05d}.jpg")
    savemat(folder / "imagelabels.mat", {"labels": np.arange(12) % 102 + 1})
    savemat(folder / "setid.mat", {"trnid": [1, 2, 3], "valid": [4, 5], "tstid": [6, 7, 8, 9, 10, 11, 12]})
    data = open_data(DataConfig(name="flowers102", root=str(tmp_path)), image_size=32)
    assert (len(data.train), len(data.validation), len(data.test())) == (3, 2, 7)
    assert data.train.labels.tolist() == [0, 1, 2] and len(data.class_names) == 102 and data.train.photographs


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
    assert data.class_names == ("Abyssinian", "great pyrenees")
    assert data.test().labels.tolist() == [0, 1]
