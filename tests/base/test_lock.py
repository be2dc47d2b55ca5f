from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitral.base.errors import DataError, UsageError
from vitral.base.lock import FolderLock

pytest.importorskip("fcntl")


def test_one_holder_at_a_time_and_it_is_named(tmp_path: Path):
    owner = rf"{tmp_path.name} is in use by a training in another process \(process {os.getpid()} on "
    with FolderLock(tmp_path, "a training"), pytest.raises(UsageError, match=owner):
        FolderLock(tmp_path, "a training").acquire()
    assert list(tmp_path.iterdir()) == []
    FolderLock(tmp_path, "a training").acquire().release()


def test_a_holder_that_is_killed_holds_no_longer(tmp_path: Path):
    code = f"""
import os, signal
from pathlib import Path
from vitral.base.lock import FolderLock
lock = FolderLock(Path({str(tmp_path)!r}), "a training").acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert (tmp_path / ".lock").exists()
    with FolderLock(tmp_path, "a training"):
        assert str(os.getpid()) in (tmp_path / ".lock").read_text()


def test_a_link_in_the_place_of_a_lock_is_not_written_through(tmp_path: Path):
    (tmp_path / "diary.txt").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / ".lock").symlink_to(tmp_path / "diary.txt")
    with pytest.raises(DataError, match="is a link, where the lock of a folder belongs"):
        FolderLock(tmp_path / "folder", "a training").acquire()
    assert (tmp_path / "diary.txt").read_text() == "mine"
