"""vitral data list|get|show."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import UsageError
from vitral.cli.data import run


def test_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--root", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for word in ("digits", "fashion-mnist", "60,000 + 10,000", "CC BY-SA", "not here", "scikit-learn", "folder:PATH"):
        assert word in shown
    assert run(["list", "--root", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["where"] for row in rows}["digits"] == "scikit-learn"
    assert all({"train", "test", "classes", "licence", "megabytes"} <= set(row) for row in rows)


def test_get_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["get", "digits"]) == 0
    assert "1,437 pictures of 10 classes" in capsys.readouterr().out


def test_show_writes_both_sheets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "digits", "--out", str(tmp_path), "--augment", "strong", "--per-class", "3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    for name in ("classes", "seen"):
        with Image.open(tmp_path / f"{name}.png") as image:
            assert np.asarray(image.convert("L")).std() > 10  # something is drawn
        assert (tmp_path / f"{name}.json").is_file()
    assert facts["train"] + facts["validation"] == 1437 and len(facts["files"]) >= 4
    labels = np.load(tmp_path / "classes.npz")["labels"]
    assert np.bincount(labels).tolist() == [3] * 10


def test_show_reports_unbalanced_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    for name, count in (("many", 20), ("few", 4)):
        (tmp_path / "set" / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(random.integers(0, 256, (12, 12), dtype=np.uint8)).save(tmp_path / "set" / name / f"{number}.png")
    assert run(["show", f"folder:{tmp_path / 'set'}", "--out", str(tmp_path / "out")]) == 0
    assert "times as many pictures as the smallest" in capsys.readouterr().out


def test_an_unknown_augmentation_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="strong"):
        run(["show", "digits", "--out", str(tmp_path / "out"), "--augment", "stong"])
    assert not (tmp_path / "out").exists()
