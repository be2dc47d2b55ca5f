from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from vitral.base.errors import DataError
from vitral.base.layout import SEEN
from vitral.cli import main
from vitral.config import DataConfig
from vitral.run.folder import RunFolder
from vitral.study.audit.pictures import open_pictures
from vitral.train.advice import before as before_training
from vitral.train.evaluate import evaluate
from vitral.train.fit import fit
from vitral.train.judged import as_trained
from vitral.train.prepare import prepare

from .conftest import tiny


def draw(photos: Path, first: int, last: int) -> None:
    noise = np.random.default_rng(first)
    for name in ("cat", "dog"):
        (photos / name).mkdir(parents=True, exist_ok=True)
        for number in range(first, last):
            Image.fromarray(noise.integers(0, 255, (8, 8, 3), np.uint8)).save(photos / name / f"{number % 7}-{number}.png")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run on 24 pictures of two classes; photos lies beside it."""
    draw(tmp_path / "photos", 0, 12)
    data = DataConfig(name=f"folder:{tmp_path / 'photos'}", validation=0.2)
    fit(dataclasses.replace(tiny(batch_size=4, snapshots=1), data=data), tmp_path / "run", quiet=True)
    return tmp_path / "run"


def scored(model: vitral.Classifier, data: str) -> set[str]:
    split = evaluate(model, data).split
    assert split is not None
    return {split.where(position) for position in range(len(split))}


def test_a_folder_that_has_grown_is_scored_on_what_the_model_has_not_seen(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = run.parent / "photos"
    test = set(RunFolder.open(run).answers().paths)
    before = set(map(str, photos.rglob("*.png")))
    draw(photos, 12, 20)
    unseen = test | set(map(str, photos.rglob("*.png"))) - before
    for place in (run, next((run / "snapshots").iterdir())):
        capsys.readouterr()
        assert scored(vitral.load(place), f"folder:{photos}") == unseen
        assert "divided otherwise now than when" in capsys.readouterr().err
    assert main(["eval", str(run), f"folder:{photos}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pictures"] == len(unseen)

    model = vitral.load(run)
    audited, _ = open_pictures(model, f"folder:{photos}", "test", 100, 0)
    assert {picture.source for picture in audited} == unseen
    probed = vitral.study.probe(model, f"folder:{photos}", shots=[None], device="cpu", quiet=True)
    assert probed.rows[0]["pictures"] == len(before) - len(test) - round(0.2 * (len(before) - len(test)))
    further = dataclasses.replace(RunFolder.open(run).settled, weights=str(run))
    assert any(f"its pictures are others than those of {run}" in note for note in before_training(prepare(further, torch.device("cpu"))))


def test_an_earlier_run_is_refused_where_a_split_cannot_be_found_again(run: Path) -> None:
    photos = run.parent / "photos"
    (run / SEEN).unlink()  # written by an earlier version
    assert scored(vitral.load(run), f"folder:{photos}") == set(RunFolder.open(run).answers().paths)
    draw(photos, 12, 14)
    with pytest.raises(DataError, match="saw"):
        evaluate(vitral.load(run), f"folder:{photos}")
    assert len(as_trained(vitral.load(run), f"folder:{photos}", "all", None, "skip").open()) == 28
    environment = json.loads((run / "env.json").read_text())
    del environment["data"]["fingerprint"]  # by a still earlier one
    (run / "env.json").write_text(json.dumps(environment))
    assert len(scored(vitral.load(run), f"folder:{photos}"))


def test_other_data_is_taken_as_it_is(run: Path, tmp_path: Path) -> None:
    draw(tmp_path / "held-out", 30, 33)
    assert len(scored(vitral.load(run), f"folder:{tmp_path / 'held-out'}")) == 6


def test_damaged_memory_is_told_in_a_line(run: Path) -> None:
    (run / SEEN).write_bytes(b"PK no archive")
    with pytest.raises(DataError, match=r"seen\.npz"):
        evaluate(vitral.load(run), f"folder:{run.parent / 'photos'}")
