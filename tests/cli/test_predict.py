"""vitral predict, and what all verbs that open pictures say to bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from vitral.build import create
from vitral.cli import main
from vitral.weights.checkpoint import save


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("predict")
    save(create("tiny", image_size=16, depth=1), folder / "model")
    save(create("tiny", image_size=16, depth=1, channels=5), folder / "five")
    Image.new("RGB", (20, 24), "teal").save(folder / "photo.png")
    (folder / "photos").mkdir()
    for name in ("b.png", "a.jpg"):
        Image.new("RGB", (20, 24), "gold").save(folder / "photos" / name)
    (folder / "photos" / "notes.txt").write_text("not a picture")
    (folder / "empty").mkdir()
    (folder / "broken.jpg").write_bytes(b"this is no picture")
    return folder


def test_table_and_json(place, capsys) -> None:
    assert main(["predict", str(place / "model"), str(place / "photo.png"), str(place / "photos"), "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [Path(line).name for line in lines if not line.startswith(" ")] == ["photo.png", "a.jpg", "b.png"]
    assert len(lines) == 9 and "%" in lines[1] and "logit" in lines[1]
    assert main(["predict", str(place / "model"), str(place / "photo.png"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    classes = answer["pictures"][0]["classes"]
    assert len(classes) == 5
    assert [one["probability"] for one in classes] == sorted((one["probability"] for one in classes), reverse=True)
    assert any("mean" in line for line in answer["model"]["assumed"])


def test_what_was_assumed_is_said(place, capsys) -> None:
    main(["predict", str(place / "model"), str(place / "photo.png")])
    assert "assumed: mean" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "picture", "words", "code"),
    [
        ("model", "missing.png", "does not exist", 1),
        ("model", "broken.jpg", "broken.jpg", 1),
        ("model", "empty", "holds no pictures", 1),
        ("five", "photo.png", "channels", 1),
        ("nothing", "photo.png", "does not exist", 1),
    ],
)
@pytest.mark.parametrize("verb", ["predict", "look", "figures"])
def test_bad_input_is_one_line(place, tmp_path, capsys, verb, model, picture, words, code) -> None:
    out = [] if verb == "predict" else ["--out", str(tmp_path)]
    assert main([verb, str(place / model), str(place / picture), *out]) == code
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("vitral: ")]
    assert len(said) == 1 and words in said[0]


def test_no_pictures_and_help(place, capsys) -> None:
    assert main(["predict", str(place / "model")]) == 2
    assert "vitral: " in capsys.readouterr().err
    assert main(["predict", "--help"]) == 0
    assert "vitral predict runs/digits" in capsys.readouterr().out
