"""What an experienced eye would say before and during a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.build import create
from vitral.config import DataConfig, RunConfig
from vitral.data.splits.open import open_data
from vitral.presets.runs import change, pretraining, run
from vitral.run.resolve import Facts, resolve
from vitral.train.advice import before, copied, during, of_config
from vitral.train.prepare import prepare
from vitral.weights.checkpoint import save


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, one eight times the other, one picture that is none and one note beside them."""
    draw = np.random.default_rng(0)
    for name, count in (("many", 64), ("few", 8)):
        (tmp_path / name).mkdir()
        for index in range(count):
            Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / name / f"{index}.png")
    (tmp_path / "few" / "broken.png").write_bytes(b"not a picture")
    (tmp_path / "few" / "notes.txt").write_text("found in May")
    return tmp_path


def test_says_once_what_was_left_out_and_what_is_unbalanced(folder: Path, capsys: pytest.CaptureFixture[str]):
    config = dataclasses.replace(run("digits"), data=DataConfig(name=f"folder:{folder}", on_bad_image="skip"))
    lines = before(prepare(config, torch.device("cpu")))
    said = capsys.readouterr().err
    assert all("\n".join([said, *lines]).count(words) == 1 for words in ("skipped: ", "broken.png", "no pictures by their names"))
    assert any("times the pictures of the smallest: try --class-weights" in line for line in lines)
    assert any("few for a ViT from scratch" in line for line in lines)


def test_pictures_of_several_labels_count_for_each_of_them(folder: Path):
    table = folder / "labels.csv"
    table.write_text("path,labels\n" + "".join(f"many/{index}.png,a;b;c\n" for index in range(60)))
    config = dataclasses.replace(run("digits"), data=DataConfig(name=f"csv:{table}"))
    lines = before(prepare(config, torch.device("cpu")))
    assert any(line.startswith("43 pictures a class: few") for line in lines), lines


def test_few_pictures_without_labels_are_not_counted_by_class(folder: Path):
    config = pretraining(f"folder:{folder}")
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, subset=20))
    lines = before(prepare(config, torch.device("cpu")))
    assert lines and not any("a class" in line for line in lines)


def test_classes_that_can_hardly_be_learnt_are_named(tmp_path: Path):
    def notes(**counts: int) -> list[str]:
        for place, count in counts.items():
            made = tmp_path / "photos" / place.replace("_", "/")
            made.mkdir(parents=True, exist_ok=True)
            for index in range(count):
                Image.fromarray(np.full((8, 8, 3), index, np.uint8)).save(made / f"{index}.png")
        config = dataclasses.replace(run("digits"), data=DataConfig(name=f"folder:{tmp_path / 'photos'}", validation=0.1))
        return [line for line in before(prepare(config, torch.device("cpu"))) if "add pictures" in line]

    assert notes(cat=8, dog=8) == []
    assert notes(owl=1) == ["1 class with a single picture to learn from and none to validate on: owl; add pictures"]
    (tmp_path / "photos").rename(tmp_path / "others")
    divided = {"train_cat": 4, "train_dog": 4, "train_owl": 1, "train_elk": 0, "val_cat": 2, "val_owl": 1, "test_cat": 2}
    assert notes(**divided) == [
        "1 class with no picture to learn from: elk; add pictures",
        "1 class with a single picture to learn from: owl; add pictures",
        "1 class with no picture to validate on: dog; add pictures",
    ]


def settled() -> RunConfig:
    return resolve(run("digits"), Facts(classes=10, channels=1, image_size=(8, 8), images=1_300)).config


def test_settings_that_often_fail_are_named():
    calm = settled()
    assert of_config(calm) == []
    assert "no warm-up" in of_config(change(calm, warmup=0.0, optimizer="adamw", lr=1e-3))[0]
    assert "forgets them" in of_config(change(calm, optimizer="adamw", lr=5e-3, weights="vit.safetensors"))[0]
    assert "patches are few" in of_config(dataclasses.replace(calm, model=dataclasses.replace(calm.model, patch_size=(4, 4))))[0]


def test_learning_by_heart_is_seen_during_the_run():
    config = run("digits")
    assert "learns by heart" in during(config, 0.99, 0.6, 0.5)
    assert during(config, 0.99, 0.95, 0.5) == "" and during(config, 0.99, 0.6, 0.1) == "" and during(config, None, 0.6, 0.5) == ""


def test_says_when_patches_are_far_too_many():
    digits = settled()
    many = change(digits, model=dataclasses.replace(digits.model, image_size=(224, 224)))
    assert any("12,544 patches a picture" in line for line in of_config(many))
    assert not any("patches a picture" in line for line in of_config(digits))


def test_test_pictures_that_were_learnt_are_named(tmp_path: Path):
    draw = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("cats", "dogs"):
            (tmp_path / split / name).mkdir(parents=True)
    for index, name in enumerate(("cats", "dogs") * 3):
        image = Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        image.save(tmp_path / "train" / name / f"{index}.png")
        if index in (0, 1, 4):
            image.save(tmp_path / "test" / name / f"again{index}.png")
    data = open_data(DataConfig(name=f"folder:{tmp_path}", validation=0.0))
    assert copied(data, "test") == []
    data.test()
    (line,) = copied(data, "test")
    assert line.startswith("3 of the 3 test pictures are copies of training pictures") and "vitral data check" in line


def test_weights_that_no_run_made_are_no_earlier_run(tmp_path: Path):
    """`vitral.save` and Hugging Face write a config.json and a model.safetensors too."""
    save(create("tiny", image_size=8, channels=1, classes=10), tmp_path)
    assert before(prepare(dataclasses.replace(run("digits"), weights=str(tmp_path)), torch.device("cpu")))
