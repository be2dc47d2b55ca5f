"""Pictures by file and by folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from vitral.base.errors import DataError
from vitral.cli.opening import picture_paths


def test_folders_of_any_depth(tmp_path: Path) -> None:
    for name in ("cats/a.JPG", "dogs/b.webp", "dogs/notes.txt", "c.avif"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = picture_paths([str(tmp_path), str(tmp_path / "dogs/notes.txt")])
    assert [path.name for path in found] == ["c.avif", "a.JPG", "b.webp", "notes.txt"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no pictures"):
        picture_paths([str(tmp_path / "empty")])
