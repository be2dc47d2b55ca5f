from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from vitral.base.errors import DataError, UsageError, VitralError
from vitral.base.files import write_json
from vitral.build import create
from vitral.config import DataConfig, to_dict
from vitral.web.limits import Limits
from vitral.web.samples import fitting_pictures, named_pictures, split_arguments


def test_model_and_pictures_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert split_arguments(("timm:vit", "a.png")) == ("timm:vit", ("a.png",))
    monkeypatch.chdir(tmp_path)
    for targets in ((), ("cat.JPG",)):
        with pytest.raises(UsageError, match="runs/demo does not exist"):
            split_arguments(targets)
    demo = tmp_path / "runs" / "demo"
    demo.mkdir(parents=True)
    (demo / "model.safetensors").touch()
    assert split_arguments(("cat.JPG", "dog.png")) == ("runs/demo", ("cat.JPG", "dog.png"))


def test_files_are_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"x" * 100)
    assert named_pictures((str(path),), Limits()) == [(b"x" * 100, "a.png")]
    with pytest.raises(DataError):
        named_pictures((str(path),), Limits(upload=50))
    with pytest.raises(VitralError):
        named_pictures((str(tmp_path / "missing.png"),), Limits())


def test_a_run_on_digits_shows_its_own_validation_pictures(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"data": to_dict(DataConfig(name="digits"))})
    found = fitting_pictures(str(tmp_path), create("digits"))
    assert len(found) == 6
    assert all(Image.open(io.BytesIO(content)).size == (8, 8) for content, _ in found)


def test_otherwise_two_photographs(tmp_path: Path) -> None:
    for config in (None, {}, {"data": {"name": "imagenet"}}, {"data": {"name": f"folder:{tmp_path / 'gone'}"}}):
        if config is not None:
            write_json(tmp_path / "config.json", config)
        assert [name for _, name in fitting_pictures(str(tmp_path), create("tiny"))] == ["china.jpg", "flower.jpg"]
