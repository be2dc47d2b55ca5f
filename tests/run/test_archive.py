"""A record's archive opens as its folder does, and a hostile one can neither write nor read anything else."""

from __future__ import annotations

import json
import shutil
import stat
import zipfile
from pathlib import Path

import pytest

from vitral.base.errors import DataError
from vitral.cli import main
from vitral.run import archive
from vitral.run.archive import opened
from vitral.train.fit import Run


def packed(folder: Path) -> Path:
    return Path(shutil.make_archive(str(folder), "zip", folder))


def test_verify_and_diff_read_an_archive_as_its_folder(trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = packed(Path(shutil.copytree(trained.path, tmp_path / "record")))
    assert main(["verify", str(record), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["path"] == str(record) and verdict["whole"] and verdict["files"] > 5
    assert main(["diff", str(trained.path), str(record), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == [str(trained.path), str(record)] and found["differ"] is False
    (tmp_path / "record/test.npz").write_bytes(b"changed")
    assert main(["verify", str(packed(tmp_path / "record"))]) == 1 and "test.npz" in capsys.readouterr().out


def test_an_open_archive_leaves_nothing_behind_and_errors_name_it(tmp_path: Path) -> None:
    (tmp_path / "cells/one").mkdir(parents=True)
    (tmp_path / "cells/one/cell.json").write_text("{}")
    record = packed(tmp_path)
    with opened(record) as folder:
        assert [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()] == ["cells/one/cell.json"]
    assert not folder.exists()
    with opened(tmp_path) as folder:
        assert folder == tmp_path
    with pytest.raises(DataError) as error, opened(record) as folder:
        raise DataError(f"{folder} holds no run", f"look into {folder}")
    assert str(error.value) == f"{record} holds no run: look into {record}"


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a//out", "./out", "a\\out", "C:out", "a\x1b[2J", ".."])
def test_a_name_that_leaves_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    entry = zipfile.ZipInfo("x")
    entry.filename = name
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as made:
        made.writestr(entry, b"content")
    refuses(tmp_path / "bad.zip", "ordinary file")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.zip"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO])
def test_a_link_or_a_pipe_is_refused(kind: int, tmp_path: Path) -> None:
    entry = zipfile.ZipInfo("test.npz")
    entry.create_system, entry.external_attr = 3, (kind | 0o644) << 16
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as made:
        made.writestr(entry, b"/etc/passwd")
    refuses(tmp_path / "bad.zip", "ordinary file")


def test_what_is_too_large_or_damaged_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "record.zip"
    with zipfile.ZipFile(record, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("one", bytes(10_000))
        made.writestr("two", bytes(10_000))
    for name, limit in (("_MOST", 1), ("_LARGEST", 19_999)):
        with monkeypatch.context() as patch:
            patch.setattr(archive, name, limit)
            refuses(record, "the limit is")
    content = record.read_bytes()
    record.write_bytes(content.replace((10_000).to_bytes(4, "little"), (100).to_bytes(4, "little")))
    refuses(record, "cannot be unpacked")  # more content than declared: no more than that is written, and its checksum is wrong
    for damaged in (b"", b"PK", content[:-30], content[:40] + b"\xff" + content[41:]):
        record.write_bytes(damaged)
        refuses(record, "cannot be unpacked")
    with zipfile.ZipFile(record, "w", zipfile.ZIP_BZIP2) as made:
        made.writestr("one", bytes(100))
    refuses(record, "ordinary file")
    with zipfile.ZipFile(record, "w") as made, pytest.warns(UserWarning, match="Duplicate"):
        made.writestr("one", b"1")
        made.writestr("one", b"2")
    refuses(record, "exists")


def refuses(path: Path, why: str) -> None:
    with pytest.raises(DataError, match=why), opened(path):
        raise AssertionError("it was opened")
