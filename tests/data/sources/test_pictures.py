"""Pictures that a user names."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from vitral.base.errors import DataError
from vitral.data.images.preprocess import Preprocess
from vitral.data.sources.pictures import find_pictures, open_readable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    for name in ("b.png", "deep/a.jpg"):
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    for name in ("._b.png", "Thumbs.db", "a.png"):
        (tmp_path / name).write_bytes(b"no picture")
    return tmp_path


def test_what_is_found_and_what_is_passed_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [path.name for path in find_pictures(folder)] == ["a.png", "b.png", "a.jpg"]
    assert "no pictures by their names: 2" in (said := capsys.readouterr().err) and "._b.png, Thumbs.db" in said
    with pytest.raises(DataError, match="folder"):
        find_pictures(folder / "b.png")


def test_those_that_can_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wants = Preprocess((8, 8))
    assert [Path(picture.source).name for picture in open_readable(find_pictures(folder), wants)] == ["b.png", "a.jpg"]
    said = capsys.readouterr().err
    assert "skipped: " in said and "a.png" in said and "1 of 3 pictures could not be read" in said
    with pytest.raises(DataError, match=r"a\.png"):
        list(open_readable([folder / "a.png"], wants))
    with pytest.raises(DataError, match="none of 2"):
        list(open_readable([folder / "a.png"] * 2, wants))
