from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from vitral.base.errors import DataError, VitralError
from vitral.base.files import write_json
from vitral.config import DataConfig, to_dict
from vitral.web.first_images import fitting_images, named_images
from vitral.web.limits import Limits


def test_files_are_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"x" * 100)
    assert named_images((str(path),), Limits()) == [(b"x" * 100, "a.png")]
    with pytest.raises(DataError):
        named_images((str(path),), Limits(upload=50))
    with pytest.raises(VitralError):
        named_images((str(tmp_path / "missing.png"),), Limits())


def test_a_run_on_digits_shows_its_own_validation_pictures(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"data": to_dict(DataConfig(name="digits"))})
    found = fitting_images(str(tmp_path))
    assert len(found) == 6
    assert all(Image.open(io.BytesIO(content)).size == (8, 8) for content, _ in found)


def test_otherwise_two_photographs(tmp_path: Path) -> None:
    for config in (None, {}, {"data": {"name": "imagenet"}}, {"data": {"name": f"folder:{tmp_path / 'gone'}"}}):
        if config is not None:
            write_json(tmp_path / "config.json", config)
        assert [name for _, name in fitting_images(str(tmp_path))] == ["china.jpg", "flower.jpg"]
