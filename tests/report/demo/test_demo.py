from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from vitral.base.errors import UsageError
from vitral.base.origin import Origin
from vitral.config import DataConfig
from vitral.presets.runs import run
from vitral.report.demo.demo import _make_room
from vitral.run.folder import Asked, RunFolder


def begun(folder: Path, name: str, data: str = "digits") -> Path:
    config = dataclasses.replace(run("digits"), name=name, data=DataConfig(name=data))
    RunFolder.create(folder, Asked(config, "digits"), config, Origin()).close()
    (folder / "state" / "a").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(("name", "data"), [("digits", "digits"), ("old", "digits"), ("demo", "mnist")])
def test_only_an_earlier_demo_is_replaced(name: str, data: str, tmp_path: Path):
    out = begun(tmp_path / "o" / ".old", name, data)
    with pytest.raises(UsageError, match="demo"):
        _make_room(out)
    assert (out / "config.json").is_file() and (out / "state" / "a").is_dir()


@pytest.mark.parametrize("place", [".", "o/.old"])
def test_any_folder_can_hold_a_demo(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    _make_room(Path(place))
    begun(Path(place), "demo")
    _make_room(Path(place))
    assert not list(Path(place).iterdir())


def test_other_files_and_folders_are_kept(tmp_path: Path):
    (tmp_path / "a").mkdir()
    for path in (tmp_path / "a" / "letter.txt", tmp_path / "b"):
        path.touch()
    for out in (tmp_path / "a", tmp_path / "b"):
        with pytest.raises(UsageError, match="demo"):
            _make_room(out)
    (tmp_path / "a" / "config.json").write_text("{")
    with pytest.raises(UsageError, match="demo"):
        _make_room(tmp_path / "a")
    assert (tmp_path / "a" / "letter.txt").is_file() and (tmp_path / "b").is_file()


def test_what_a_link_points_to_is_kept(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    out = begun(tmp_path / "demo", "demo")
    (out / "figures").symlink_to(tmp_path / "mine")
    _make_room(out)
    assert (tmp_path / "mine" / "letter.txt").is_file() and not list(out.iterdir())


def test_a_demo_of_an_earlier_version_is_known_by_its_picture(tmp_path: Path):
    out = begun(tmp_path / "first", "first")
    (out / "digit.png").touch()
    _make_room(out)
    assert not list(out.iterdir())
