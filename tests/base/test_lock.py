from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitral.base.errors import UsageError
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
