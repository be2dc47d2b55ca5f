from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from PIL import Image

from vitral.base.errors import DataError, VitralError
from vitral.base.origin import Origin
from vitral.config import DataConfig, RunConfig
from vitral.presets.runs import pretraining, run
from vitral.run.folder import Asked, RunFolder
from vitral.web.first_images import fitting_images, named_images
from vitral.web.server.limits import Limits


def test_files_are_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"x" * 100)
    assert named_images((str(path),), Limits()) == [(b"x" * 100, "a.png")]
    with pytest.raises(DataError):
        named_images((str(path),), Limits(upload=50))
    with pytest.raises(VitralError):
        named_images((str(tmp_path / "missing.png"),), Limits())


def begun(folder: Path, data: str, config: RunConfig | None = None) -> str:
    config = config or dataclasses.replace(run("digits"), data=DataConfig(name=data))
    RunFolder.create(folder, Asked(config, "digits"), config, Origin()).close()
    return str(folder)


def test_a_run_on_digits_shows_its_own_validation_images(tmp_path: Path) -> None:
    found = fitting_images(begun(tmp_path / "run", "digits"))
    assert len(found) == 6
    assert all(Image.open(io.BytesIO(content)).size == (8, 8) for content, _ in found)


def test_a_pretraining_shows_its_own_images_too(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(100):
        Image.new("RGB", (9, 7), (number, 0, 0)).save(tmp_path / "photos" / f"{number}.png")
    data = f"folder:{tmp_path / 'photos'}"
    found = fitting_images(begun(tmp_path / "run", data, pretraining(data)))
    assert len(found) == 6 and all(Image.open(io.BytesIO(content)).size == (9, 7) for content, _ in found)


def test_otherwise_two_photographs(tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{}")
    elsewhere = begun(tmp_path / "a", "imagenet"), begun(tmp_path / "b", f"folder:{tmp_path / 'gone'}")
    for where in (*elsewhere, str(tmp_path / "damaged"), str(tmp_path / "nothing"), "timm:vit_tiny"):
        assert [name for _, name in fitting_images(where)] == ["china.jpg", "flower.jpg"]
