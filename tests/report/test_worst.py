"""The page of the most confident errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vitral.base import layout
from vitral.base.origin import Fact
from vitral.base.records import write_records
from vitral.build import create
from vitral.cli import main
from vitral.config import to_dict
from vitral.look.describe import digest
from vitral.presets.runs import run
from vitral.run import made_here
from vitral.run.answers import Answers
from vitral.weights.checkpoint import save

PREDICTIONS, LABELS = np.array([0, 0, 1, 1, 0, 1]), np.array([0, 1, 0, 1, 1, 0])
CONFIDENCE = np.array([0.9, 0.6, 0.95, 0.8, 0.7, 0.55])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A model that was audited, six pictures of two classes, and what an `eval` of it would leave: four errors."""
    monkeypatch.chdir(tmp_path)
    random, paths = np.random.default_rng(0), []
    for number in range(6):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(random.integers(0, 255, (24, 32, 3), dtype=np.uint8)).save(paths[-1])
    model = create("tiny", image_size=16, depth=2, classes=2)
    model.origin = model.origin.with_change("for a test")
    object.__setattr__(model.origin, "classes", Fact(("cat", "dog"), "declared"))
    folder = Path(save(model, tmp_path / "model"))
    top = np.stack([PREDICTIONS, 1 - PREDICTIONS], axis=1)
    answers = Answers(PREDICTIONS, LABELS, tuple(paths), top, np.stack([CONFIDENCE, 1 - CONFIDENCE], axis=1))
    scored = tmp_path / "scored"
    scored.mkdir()
    answers.write(scored)
    (scored / layout.scores_name()).write_text(json.dumps({"data": "folder:photos", "per_class": {"cat": 0.3, "dog": 0.3}}))
    (folder / layout.AUDIT).mkdir()
    row = {"method": "relevance", "verdict": "with care", "reason": "it wavers"}
    (folder / layout.AUDIT / layout.VERDICTS).write_text(json.dumps({"model": digest(model), "rows": [row]}))
    names = ["cat", "dog"]
    rows = [
        {"path": path, "truth": names[truth], "right": bool(truth == answer), "answer": names[answer], "confidence": float(share)}
        for path, truth, answer, share in zip(paths, LABELS, PREDICTIONS, CONFIDENCE, strict=True)
    ]
    (tmp_path / "answers.json").write_text(json.dumps(rows))
    return SimpleNamespace(model=folder, scored=scored, table=tmp_path / "answers.json", paths=paths, answers=answers, root=tmp_path)


@pytest.mark.parametrize("kind", ["scored", "answers.json", "answers.csv", "answers.parquet"])
def test_the_most_confident_errors_with_maps_neighbours_and_verdict(place, read: Callable, capsys, kind: str) -> None:
    if kind != "scored":
        write_records(Path(kind), json.loads(place.table.read_text()))
    arguments = ["look", str(place.model), kind, "--worst", "2", "--out", "seen", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == {"files": ["seen/worst.html"]}
    page = read(Path("seen/worst.html"))
    shown = [facts["alt"] for tag, facts in page.tags if tag == "img" and facts["alt"][0] in "cd"]
    surest = ["cat, taken for dog, 95.0 %", "dog, taken for cat, 70.0 %"]
    assert shown[:2] == surest and set(shown[2:]) == {"dog, taken for cat, 60.0 %", "cat, taken for dog, 55.0 %"} and len(shown) == 4
    assert "4 of 6 pictures" in page.text and "more of class cat" in page.text and "more of class dog" in page.text
    enlarged = [facts["aria-label"] for tag, facts in page.tags if tag == "input"]
    assert len([label for label in enlarged if label.startswith("enlarge: for ")]) == 8  # two for each of four errors
    assert len([label for label in enlarged if label.startswith("enlarge: near (")]) == 12  # three for each
    assert "The audit of this model says of relevance: with care: it wavers." in page.text and "--worst 2" in page.text


def write_page(place: Any) -> None:
    """look/worst.html: four errors, with pictures that were learnt from."""
    for number, path in enumerate(place.paths):
        for split in ("train",) if number < 4 else ("val", "test"):
            folder = Path("photos") / split / ("cat", "dog")[number % 2]
            folder.mkdir(parents=True, exist_ok=True)
            Image.open(path).save(folder / f"{number}.png")
    assert main(["look", str(place.model), "scored", "--worst", "4", "--training-data", "folder:photos"]) == 0


def test_what_the_model_learnt_from_stands_beside_what_was_scored(place, read: Callable, capsys) -> None:
    write_page(place)
    page = read(Path("look/worst.html"))
    learnt = [facts["aria-label"] for tag, facts in page.tags if tag == "input" and facts["aria-label"].startswith("enlarge: learnt (")]
    assert len(learnt) == 12 and "learnt from, with their truth (all 4)" in page.text
    # The surest error is the third picture, which was learnt from as a cat: the same file, so a cosine of 1.
    assert learnt[0] == "enlarge: learnt (1.00): cat"
    capsys.readouterr()
    assert main(["look", str(place.model), "scored", "--worst", "4", "--training-data", "folder:nowhere"]) in (1, 2)
    assert main(["look", str(place.model), place.paths[0], "--training-data", "folder:photos"]) == 2
    assert "--training-data goes with --worst alone" in capsys.readouterr().err


def test_a_run_shows_its_own_test_and_a_strangers_run_is_not_opened(place, read: Callable, capsys, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.root / "cache"))
    place.answers.write(place.model)
    (place.model / layout.scores_name()).write_text(json.dumps({"per_class": {"cat": 0.3, "dog": 0.3}}))
    settings = to_dict(run("digits"))
    settings["data"]["name"] = "folder:photos"
    (place.model / layout.CONFIG).write_text(json.dumps({**settings, **json.loads((place.model / layout.CONFIG).read_text())}))
    (place.model / layout.MANIFEST).unlink()
    assert main(["look", str(place.model), "--worst", "1"]) == 2
    assert "was not made on this machine" in capsys.readouterr().err and not Path("look").exists()
    made_here.record(place.model)
    assert main(["look", str(place.model), "--worst", "1", "--method", "gradcam"]) == 0
    text = read(Path("look/worst.html")).text
    assert "(gradcam)" in text and "No audit of this model judged gradcam" in text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["scored", "--worst", "0"], "--worst 0 shows nothing"),
        (["scored", "answers.json", "--worst", "1"], "--worst takes one folder or table, not 2"),
        (["scored", "--worst", "1", "--block", "1"], "--block has no part in --worst"),
        (["scored", "--worst", "1", "--method", "rollout"], "rollout does not explain a class"),
        (["scored", "--worst", "1", "--method", "relevance,gradcam"], "by one method"),
        (["nowhere", "--worst", "1"], "nowhere does not exist"),
        (["0.png", "--worst", "1"], "neither a folder nor a table"),
        (["empty", "--worst", "1"], "empty holds no test answers"),
        (["right", "--worst", "1"], "right holds no errors: all 6 pictures are right"),
        (["three.json", "--worst", "1"], "names 'cow', which is no class of this model"),
        (["other", "--worst", "1"], "answers of another model: this one has 2 classes"),
        (["gone.json", "--worst", "1"], "no picture that gone.json names can be opened"),
        (["--worst", "1"], "holds no test answers"),
    ],
)
def test_refusals_are_one_line_and_nothing_is_written(place, capsys, given: list[str], words: str) -> None:
    rows = json.loads(place.table.read_text())
    Path("three.json").write_text(json.dumps([{**rows[0], "truth": "cow"}]))
    Path("gone.json").write_text(json.dumps([{**row, "path": "gone.png"} for row in rows]))
    for name in ("empty", "right", "other"):
        Path(name).mkdir()
    Answers(LABELS, LABELS, tuple(place.paths)).write(Path("right"))
    Answers(LABELS + 5, LABELS, tuple(place.paths)).write(Path("other"))
    assert main(["look", str(place.model), *given]) in (1, 2)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("vitral: ")]
    assert len(said) == 1 and words in said[0] and not Path("look").exists()
