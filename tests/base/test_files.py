from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitral.base import files
from vitral.base.errors import DataError, VitralError


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_write_makes_folders_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.txt"
    assert files.write_atomic(path, "grün") == path
    assert path.read_bytes() == "grün".encode()
    files.write_atomic(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert left_behind(path.parent) == []


def test_a_written_file_has_ordinary_permissions(tmp_path: Path) -> None:
    (tmp_path / "ordinary").touch()
    files.write_atomic(tmp_path / "ours", "x")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE((tmp_path / "ordinary").stat().st_mode)


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_crash_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    path = files.write_atomic(tmp_path / "file", "old")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, at, fail)
    with pytest.raises(KeyboardInterrupt):
        files.write_atomic(path, "new")
    assert path.read_text() == "old"
    assert left_behind(tmp_path) == []


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(VitralError, match="disk"):
        files.write_atomic(tmp_path / "file", "x")
    assert list(tmp_path.iterdir()) == []


def test_many_writers_leave_one_whole_file(tmp_path: Path) -> None:
    path, contents = tmp_path / "file", [str(n) * 20_000 for n in range(8)]
    seen: list[str] = []
    files.write_atomic(path, contents[0])

    def write(content: str) -> None:
        for _ in range(10):
            files.write_atomic(path, content)
            seen.append(path.read_text())

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(seen) == 80
    assert set(seen) <= set(contents)
    assert left_behind(tmp_path) == []


TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=JSON)
def test_json_round_trip(data: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "round.json"
    assert files.read_json(files.write_json(path, data)) == data


def test_json_of_numpy_and_nan(tmp_path: Path) -> None:
    data = {"a": np.float32(0.5), "b": np.arange(3), "c": (1, Path("x/y")), "d": float("nan"), 5: np.array([np.inf, 1.0]), "e": {"z", "a"}}
    path = files.write_json(tmp_path / "x.json", data)
    assert json.loads(path.read_text()) == {"a": 0.5, "b": [0, 1, 2], "c": [1, "x/y"], "d": None, "5": [None, 1.0], "e": ["a", "z"]}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 200_000])
def test_damaged_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.json"):
        files.read_json(tmp_path / "x.json")


def test_reads_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing"):
        files.read_json(tmp_path / "missing")
    with pytest.raises(DataError, match="regular"):
        files.read_bounded(tmp_path, 10)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="regular"):
        files.read_bounded(tmp_path / "pipe", 10)
    with pytest.raises(DataError, match="cannot write"):
        (tmp_path / "file").touch()
        files.write_atomic(tmp_path / "file" / "below", "x")


def test_a_file_that_grows_while_it_is_read_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_bytes(b"12345678")
    status = os.fstat
    monkeypatch.setattr(os, "fstat", lambda handle: SimpleNamespace(st_mode=status(handle).st_mode, st_size=3))
    assert files.read_bounded(tmp_path / "log", 8) == b"12345678"
    with pytest.raises(DataError, match="7 bytes"):
        files.read_bounded(tmp_path / "log", 7)


def test_read_bounded_at_the_limit(tmp_path: Path) -> None:
    path = files.write_atomic(tmp_path / "x", b"12345")
    assert files.read_bounded(path, 5) == b"12345"
    with pytest.raises(DataError, match="5 bytes"):
        files.read_bounded(path, 4)


def test_hashes(tmp_path: Path) -> None:
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert files.sha256_bytes(b"abc") == known
    assert files.sha256_file(files.write_atomic(tmp_path / "x", b"abc")) == known
    with pytest.raises(DataError, match="exist"):
        files.sha256_file(tmp_path / "missing")


def test_replacing_folder(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for content in ("one", "two"):
        with files.replacing_folder(path) as new:
            (new / "inner").mkdir()
            (new / "inner" / content).write_text(content)
            assert not (path / "inner" / content).exists()
        assert [file.name for file in (path / "inner").iterdir()] == [content]
    assert left_behind(tmp_path) == []


def test_replacing_folder_keeps_the_old_one_on_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(ZeroDivisionError), files.replacing_folder(path) as new:
        (new / "half").touch()
        raise ZeroDivisionError
    assert [file.name for file in path.iterdir()] == ["old"]

    rename = os.rename

    def no_entry(source: Path, target: Path) -> None:
        if Path(target) == path and str(source).endswith(".tmp"):
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(files.os, "rename", no_entry)
    with pytest.raises(VitralError, match="Input/output error"), files.replacing_folder(path) as new:
        (new / "whole").touch()
    assert [file.name for file in path.iterdir()] == ["old"]
    assert left_behind(tmp_path) == []


def test_replacing_folder_from_many_threads(tmp_path: Path) -> None:
    path, failures = tmp_path / "run", []

    def write(name: str) -> None:
        try:
            for _ in range(10):
                with files.replacing_folder(path) as new:
                    (new / "a").write_text(name)
                    (new / "b").write_text(name)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(str(n),)) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert failures == []
    assert (path / "a").read_text() == (path / "b").read_text()
    assert left_behind(tmp_path) == []


def test_a_folder_is_made_once_and_never_over_a_file(tmp_path: Path) -> None:
    assert files.make_folder(tmp_path / "a" / "b") == files.make_folder(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataError, match="folder"):
            files.make_folder(path)


def test_settings_have_a_smaller_bound(tmp_path: Path) -> None:
    """Empty lists take sixty times their bytes: 60 MB of them would be 3.4 GB."""
    path = tmp_path / "config.json"
    path.write_text("[" + "[]," * 2_000_000 + "[]]")
    with pytest.raises(DataError, match="4,194,304"):
        files.read_json(path, files.SETTINGS_LIMIT)
    assert len(files.read_json(path)) == 2_000_001
    path.write_text("1" * 5000)
    with pytest.raises(DataError, match="not JSON"):
        files.read_json(path)


def test_half_a_letter_is_spelt_out_and_read_back(tmp_path: Path) -> None:
    """File names need not be UTF-8: what they become in a string has no place in a text file."""
    name = os.fsdecode(b"cat-\xff.png")
    assert files.read_json(files.write_json(tmp_path / "a.json", {name: name})) == {name: name}
    assert files.write_atomic(tmp_path / "a.html", f"<p>{name}").read_text(encoding="utf-8") == "<p>cat-\\udcff.png"
