"""Hugging Face tables saved on disk."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import DataError
from vitral.config import DataConfig
from vitral.data.splits.open import open_data

datasets = pytest.importorskip("datasets")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")


def png(value: int, orientation: int = 1) -> dict[str, Any]:
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.fromarray(np.full((80, 70, 3), value, np.uint8)).save(buffer, "PNG", exif=exif)
    return {"bytes": buffer.getvalue(), "path": None}


def save(folder: Path, labels: list[Any], label_feature: Any, **splits: list[Any]) -> str:
    features = datasets.Features({"picture": datasets.Image(), "label": label_feature})
    tables = {
        name: datasets.Dataset.from_dict({"picture": [png(i, 6) for i in range(len(values))], "label": values}, features=features)
        for name, values in {"train": labels, **splits}.items()
    }
    datasets.DatasetDict(tables).save_to_disk(str(folder))
    return str(folder)


def test_table_with_named_classes(tmp_path: Path) -> None:
    kind = datasets.ClassLabel(names=["cat", "dog"])
    name = save(tmp_path / "set", [0, 1] * 6, kind, test=[1, 0], validation=[0, 1, 1])
    data = open_data(DataConfig(name=f"hf:{name}"), image_size=16)
    assert data.class_names == ("cat", "dog")
    assert (len(data.train), len(data.validation), len(data.test())) == (12, 3, 2)
    # Decoding is ours: the EXIF rotation is applied.
    assert data.train.picture(0).size == (80, 70)
    assert np.asarray(data.train.picture(5)).max() == 5
    assert data.train.pixels().shape == (12, 3, 16, 16)


def test_labels_as_words_and_hidden_test_labels(tmp_path: Path) -> None:
    words = save(tmp_path / "words", ["dog", "cat"] * 8, datasets.Value("string"))
    data = open_data(DataConfig(name=f"hf:{words}"), image_size=8)
    assert data.class_names == ("cat", "dog") and set(data.train.labels.tolist()) == {0, 1} and len(data.test()) == 3
    hidden = save(tmp_path / "hidden", [0, 1] * 8, datasets.Value("int64"), test=[-1, -1])
    data = open_data(DataConfig(name=f"hf:{hidden}"), image_size=8)
    assert data.test().labels.min() >= 0 and "no labels" in data.notes[0]
    half = save(tmp_path / "half", [0, 1] * 16, datasets.Value("int64"), validation=[-1, -1], test=[0, 1])
    data = open_data(DataConfig(name=f"hf:{half}", validation=0.25), image_size=8)
    assert len(data.validation) == 8 and data.validation.labels.min() >= 0 and "the validation split" in data.notes[0]


def test_offline_and_useless_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def unreachable(*arguments: object, **options: object) -> object:
        logging.getLogger("datasets.load").warning("Retrying in 1s [Retry 1/5].")
        assert datasets.config.HF_HUB_OFFLINE  # its own copy of the switch
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    monkeypatch.setattr("vitral.base.network.reachable", lambda address: False)
    with pytest.raises(DataError, match="HF_HUB_OFFLINE"):
        open_data(DataConfig(name="hf:some/set"))
    assert capfd.readouterr().err == "" and not datasets.config.HF_HUB_OFFLINE
    datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a"]})}).save_to_disk(str(tmp_path / "text"))
    with pytest.raises(DataError, match="columns text"):
        open_data(DataConfig(name=f"hf:{tmp_path / 'text'}"))
