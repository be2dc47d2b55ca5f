"""vitral look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from vitral.base.errors import UsageError
from vitral.build import create
from vitral.cli import main
from vitral.cli.look import read_start, read_target
from vitral.weights.checkpoint import save


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("look")
    save(create("tiny", image_size=16, depth=2), folder / "model")
    save(create("cnn", image_size=16), folder / "cnn")
    Image.new("RGB", (20, 24), "teal").save(folder / "photo.png")
    return folder


def test_one_sheet_per_picture(place, tmp_path, capsys) -> None:
    arguments = ["look", str(place / "model"), str(place / "photo.png"), "--out", str(tmp_path)]
    assert main([*arguments, "--method", "rollout,relevance", "--target", "3", "--start", "1,2"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "photo.png")]
    facts = json.loads((tmp_path / "photo.json").read_text())
    assert [(one["method"], one["target"]) for one in facts["maps"]] == [("rollout", None), ("relevance", 3)]
    assert "row 1, column 2" in facts["maps"][0]["note"]
    assert (tmp_path / "photo.npz").is_file()


@pytest.mark.parametrize(
    ("model", "flags", "words"),
    [
        ("model", ["--method", "rolout"], "unknown method 'rolout'"),
        ("model", ["--method", "attention", "--block", "9"], "block 9 does not exist: this model has blocks 0 to 1"),
        ("model", ["--method", "attention", "--head", "9"], "head 9 does not exist: this model has heads 0 to 2"),
        ("model", ["--method", "relevance", "--target", "77"], "class 77 does not exist"),
        ("model", ["--method", "rollout", "--start", "8,8"], "patch (8, 8) does not exist"),
        ("cnn", ["--method", "rollout"], "a cnn has none"),
        ("model", ["--method", "rollout", "--head", "1"], "head = 1 is used by none of rollout: leave it out, or add attention"),
        ("cnn", ["--start", "mean", "--method", "gradcam"], "start = mean is used by none of gradcam"),
        ("model", ["--metod", "rollout"], "--metod"),
    ],
)
def test_bad_use_is_one_line(place, tmp_path, capsys, model, flags, words) -> None:
    assert main(["look", str(place / model), str(place / "photo.png"), "--out", str(tmp_path), *flags]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("vitral: ")]
    assert len(said) == 1 and words in said[0]
    assert not list(tmp_path.glob("*.png"))


def test_an_option_that_only_some_methods_take_is_told(place, tmp_path, capsys) -> None:
    arguments = ["look", str(place / "model"), str(place / "photo.png"), "--out", str(tmp_path), "--method", "attention,rollout,norms"]
    assert main([*arguments, "--block", "0"]) == 0
    assert "block = 0 is not used by rollout" in capsys.readouterr().err
    notes = {one["method"]: one["note"] for one in json.loads((tmp_path / "photo.json").read_text())["maps"]}
    assert notes["rollout"] == "rollout does not use block" and notes["attention"] == ""


def test_reading_flags() -> None:
    assert (read_start("class"), read_start("7"), read_start("3, 4")) == ("class", 7, (3, 4))
    assert (read_target(None), read_target("5"), read_target("cat")) == (None, 5, "cat")
    with pytest.raises(UsageError, match="patch"):
        read_start("1,2,3")
