"""vitral predict, and what all verbs that open pictures say to bad input."""

from __future__ import annotations

import csv
import importlib
import json
import shutil
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


def test_one_bad_file_among_many_is_named_and_passed_over(place, tmp_path, capsys) -> None:
    shutil.copytree(place / "photos", tmp_path / "photos")
    (tmp_path / "photos" / "a broken.jpg").write_bytes(b"this is no picture")
    (tmp_path / "photos" / "._b.png").write_bytes(b"a Mac's shadow file")
    model, photos = str(place / "model"), str(tmp_path / "photos")
    for verb, more in (
        ("predict", []),
        ("look", ["--method", "norms"]),
        ("figures", ["--format", "png", "--only", "patches"]),
        ("embed", []),
    ):
        out = [] if verb == "predict" else ["--out", str(tmp_path / verb)]
        assert main([verb, model, photos, *out, *more, "--device", "cpu"]) == 0
        said = capsys.readouterr()
        assert "a broken.jpg is not a picture" in said.err and "1 of 3 pictures could not be read" in said.err, verb
        assert "._b.png, notes.txt" in said.err and "on-bad-image" not in said.err
    for path in (tmp_path / "photos").iterdir():
        path.write_bytes(b"this is no picture")
    assert main(["predict", model, photos]) == 1
    assert "vitral: none of 3 pictures can be read, such as" in capsys.readouterr().err


def test_a_bad_file_that_was_named_by_hand_fails_the_command_after_the_others(place, tmp_path, capsys) -> None:
    model, broken, photo = (str(place / name) for name in ("model", "broken.jpg", "photo.png"))
    for verb, more in (("look", ["--method", "norms"]), ("figures", ["--format", "png", "--only", "patches"]), ("lens", [])):
        assert main([verb, model, photo, broken, *more, "--out", str(tmp_path / verb), "--device", "cpu"]) == 1, verb
        assert "1 of 2 pictures could not be read" in capsys.readouterr().err and list((tmp_path / verb).rglob("*.png")), verb
    assert main(["predict", model, broken, photo, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert [picture["picture"] for picture in answer["pictures"]] == [photo]
    assert answer["unreadable"] == [{"picture": broken, "error": f"{broken} is not a picture that can be read"}]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_answers_as_a_table(place, tmp_path, kind) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / f"answers.{kind}"
    assert main(["predict", str(place / "model"), str(place / "photos"), "--top", "2", "--batch", "1", "--table", str(out)]) == 0
    if kind == "csv":
        rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    elif kind == "json":
        rows = json.loads(out.read_text())
    else:
        rows = importlib.import_module("pyarrow.parquet").read_table(out).to_pylist()
    assert [Path(row["path"]).name for row in rows] == ["a.jpg", "b.png"]
    assert list(rows[0]) == ["path", "answer", "confidence", "class_1", "probability_1", "class_2", "probability_2"]
    assert rows[0]["answer"] == rows[0]["class_1"] and float(rows[0]["probability_1"]) >= float(rows[0]["probability_2"])


def test_a_table_of_an_unknown_kind_is_refused_before_anything_is_done(place, capsys) -> None:
    assert main(["predict", str(place / "nothing"), str(place / "photos"), "--table", "a.xlsx"]) == 2
    assert "end its name in .csv, .json, .parquet" in capsys.readouterr().err


def test_flags_that_every_verb_has(place, capsys) -> None:
    model, photo = str(place / "model"), str(place / "photo.png")
    assert main(["predict", model, photo, "--device", "cpu", "--threads", "1", "--preprocess", "imagenet"]) == 0
    assert "mean" not in capsys.readouterr().err
    assert main(["predict", model, photo]) == 0
    short = capsys.readouterr().err
    assert short.startswith("assumed: mean, std") and "0.5" not in short and len(short.splitlines()) == 1
    assert main(["predict", model, photo, "--verbose"]) == 0 and "mean = (0.5, 0.5, 0.5) (assumed" in capsys.readouterr().err
    for verb in ("eval", "predict", "look", "figures", "explore", "embed", "probe"):
        assert main([verb, "--help-all"]) == 0
        told = capsys.readouterr().out
        assert all(flag in told for flag in ("--device", "--threads", "--preprocess", "--verbose")), verb
        assert ("--batch" in told) is (verb in ("eval", "predict", "embed", "probe")), verb
