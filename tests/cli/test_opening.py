"""Pictures by file and by folder."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from vitral.base.errors import DataError
from vitral.cli import main
from vitral.cli.opening import picture_paths


def test_folders_of_any_depth(tmp_path: Path) -> None:
    for name in ("cats/a.JPG", "dogs/b.webp", "dogs/notes.txt", "c.avif"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = picture_paths([str(tmp_path), str(tmp_path / "dogs/notes.txt")])
    assert [path.name for path in found] == ["c.avif", "a.JPG", "b.webp", "notes.txt"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="pictures"):
        picture_paths([str(tmp_path / "empty")])


@pytest.mark.parametrize(
    "words",
    [
        "look MODEL PICTURE --method rolout",
        "look MODEL PICTURE --start 1,2,3",
        "look MODEL --worst 3 --method rolout",
        "look MODEL missing.jpg",
        "figures MODEL --only atention",
        "figures MODEL --token 1,2,3",
        "audit MODEL digtis",
        "audit MODEL digits --methods rolout",
        "eval MODEL digtis",
        "eval MODEL folder:missing",
        "eval MODEL csv:missing.csv",
        "probe MODEL digtis",
        "probe MODEL digits --shots none",
        "quantise MODEL digtis --out OUT",
        "embed MODEL missing",
        "lens MODEL PICTURE --fit digtis",
        "lens MODEL PICTURE --trained missing.safetensors",
        "explore MODEL missing.jpg",
        "predict MODEL missing.jpg",
        "train digits --augment stong",
        "compare cifar10 --models vitt",
        "compare cifar10 --vary augment=light,stong",
        "compare cifar10 --vary norm_order=pre,pre",
        "compare cifar10 --vary betas=0.9,0.95",
        "compare cifar10 --vary batch_size=0,64",
        "compare cifar10 --from vit=missing.safetensors",
        "compare cifar10 --augment stong",
        "compare cifar10 --models vit,cnn --out PICTURE/inside",
        "train cifar10 --out PICTURE/inside",
        "audit MODEL digits --out PICTURE/inside",
        "eval MODEL digits --out PICTURE/inside",
        "quantise MODEL digits --out PICTURE/inside",
        "embed MODEL FOLDER --out PICTURE/inside",
        "embed MODEL FOLDER --out PICTURE/inside.npz",
    ],
)
def test_mistakes_are_found_before_a_model_is_fetched_or_data_is_read(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        pytest.fail("it was opened first")

    monkeypatch.setattr("vitral.weights.load.load", fail)
    monkeypatch.setattr(importlib.import_module("vitral.study.fight.compare"), "open_data", fail)
    monkeypatch.setattr("vitral.train.prepare.open_source", fail)
    picture = tmp_path / "picture.png"
    picture.touch()
    places = {"PICTURE": str(picture), "MODEL": "timm:vit_tiny_patch16_224", "OUT": str(tmp_path / "out"), "FOLDER": str(tmp_path)}
    assert main(["/".join(places.get(part, part) for part in word.split("/")) for word in words.split()]) in (1, 2)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Error" not in said, said
