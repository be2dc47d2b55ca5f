from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitral.base.errors import DataError, UsageError
from vitral.base.lock import FolderLock

pytest.importorskip("fcntl")

ROOT = Path(__file__).parents[2]


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
    with pytest.raises(DataError, match="link"):
        FolderLock(tmp_path / "folder", "a training").acquire()
    assert (tmp_path / "diary.txt").read_text() == "mine"


VERBS = """
import json, signal, subprocess, sys
from pathlib import Path

import torch  # it takes from Python's library what it wants before that is gone
from tests.base.windows import become

become()
from vitral.base.lock import FolderLock
from vitral.base.progress import watched
from vitral.cli import main

SMALL = "--threads 1 --batch-size 64 --epochs 1 --set width=16 depth=1 heads=2 mlp_width=16".split()
study = "compare digits --models vit-small --budget samples=256 --batch-size 64 --seeds 1 --lrs 3e-3 --claim none".split()
study += ["--parallel", "1", "--threads", "1", "--out", "study"]
train = ["train", "digits", "--out", "run"]
codes = {}


def stop(bar):
    if bar.description == "Training" and bar.done == 4:
        signal.raise_signal(signal.SIGINT)


with watched(stop):
    codes["stopped"] = main([*train, *SMALL])
with FolderLock(Path("run"), "a training"):
    codes["second training"] = main([*train, "--resume"])
    codes["another process"] = subprocess.run([sys.executable, "-c", sys.argv[1]], check=False).returncode
codes["resume"], codes["compare"] = main([*train, "--resume"]), main(study)
with FolderLock(Path("study", "cells"), "a study"):
    codes["second study"] = main(study)
codes["verify run"], codes["verify study"] = main(["verify", "run"]), main(["verify", "study"])
json.dump(codes, open("codes.json", "w"))
"""

SECOND = """
from pathlib import Path
from tests.base.windows import become

become()
from vitral.base.errors import UsageError
from vitral.base.lock import FolderLock
try:
    FolderLock(Path("run"), "a training").acquire()
except UsageError as error:
    raise SystemExit(str(error))
"""


@pytest.mark.slow
def test_train_resume_compare_and_verify_on_windows_with_one_writer_per_folder(tmp_path: Path) -> None:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    ended = subprocess.run(
        [sys.executable, "-c", VERBS, SECOND],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [paths, os.environ.get("PYTHONPATH")]))},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    codes = json.loads((tmp_path / "codes.json").read_text())
    refused = {"second training": 2, "second study": 2, "another process": 1}
    assert codes == {"stopped": 1, **refused, "resume": 0, "compare": 0, "verify run": 0, "verify study": 0}, ended.stderr
    assert ended.stderr.count("in use by a training in another process (process ") == 2
    assert ended.stderr.count("in use by a study in another process (process ") == 1
    assert "20 steps on cpu (1 thread), going on at step 4" in ended.stderr
    assert not list(tmp_path.rglob(".lock"))
