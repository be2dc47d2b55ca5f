from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vitral.base.errors import DataError
from vitral.config import to_dict
from vitral.presets.runs import run as named_run
from vitral.report.study import write_report


def test_a_folder_is_known_by_what_it_holds(tmp_path: Path, read: Callable) -> None:
    run, study = tmp_path / "run", tmp_path / "study"
    for folder, name, content in ((run, "config.json", to_dict(named_run("digits"))), (study, "study.json", {"name": "x"})):
        folder.mkdir()
        (folder / name).write_text(json.dumps(content))
    assert "Train it again" in read(write_report(run)).text
    assert "Study: study" in read(write_report(study, tmp_path / "page.html")).text
    assert (tmp_path / "page.html").exists()


def test_other_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="study"):
        write_report(tmp_path)
    with pytest.raises(DataError, match="folder"):
        write_report(tmp_path / "missing")
