"""The film of a real, tiny run: what it measures, what it writes, and what the report shows of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from vitral import look
from vitral.cli import main
from vitral.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from vitral.data.images.preprocess import Preprocess
from vitral.draw import film as drawing
from vitral.presets.runs import pretraining
from vitral.report.run import write_run_report
from vitral.run.folder import Asked, RunFolder
from vitral.study.film import film, measure, steady
from vitral.study.plan import plan

MODEL = {"image_size": 8, "patch_size": 2, "channels": 1, "width": 24, "heads": 3, "mlp_width": 32, "depth": 2}


def make_run(folder: Path, classes: int = 10, steps: tuple[int, ...] = (0, 2, 9), base: RunConfig | None = None) -> RunFolder:
    """A run as training leaves it, but for the learning: each snapshot has other weights."""
    base = base or RunConfig("digits", ModelConfig(), DataConfig("digits"), TrainConfig(snapshots=3))
    config = dataclasses.replace(base, model=ModelConfig(classes=classes, **MODEL))
    model = vitral.create("tiny", classes=classes, **MODEL)
    model.origin = Preprocess((8, 8), 1).write_to(model.origin)
    run = RunFolder.create(folder, Asked(config, "digits"), config, model.origin)
    for step in steps:
        torch.manual_seed(step)
        other = vitral.create("tiny", classes=classes, **MODEL)
        other.origin = model.origin
        run.write_snapshot(step, other)
    run.close()
    return run


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "DPI", 30)


def test_a_run_becomes_a_film(tmp_path, capsys) -> None:
    run = make_run(tmp_path / "run")
    assert main(["film", str(run.path), "--pictures", "2", "--format", "webp", "gif", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["steps"] == [0, 2, 9] and set(told["parts"]) == {"attention", "classes", "lens", "positions", "filters", "distance"}
    for ending in ("webp", "gif"):
        with Image.open(run.path / f"film/film.{ending}") as moving:
            assert moving.n_frames == 3
    numbers = np.load(run.path / "film/sheet.npz")
    assert numbers["attention"].shape == (3, 2, 2, 4, 4) and numbers["lens"].shape == (3, 2, 3)
    assert not np.array_equal(numbers["attention"][0], numbers["attention"][1])
    assert json.loads((run.path / "film/sheet.json").read_text())["command"].startswith("vitral film ")
    page = write_run_report(run.path).read_text()
    assert page.count('type="radio"') == 3 and 'aria-label="step 9" checked' in page and "<script" not in page


def test_what_is_measured_is_what_look_measures(tmp_path) -> None:
    run = make_run(tmp_path / "run")
    model = vitral.load(run.snapshots()[1][1])
    picture = vitral.open_picture(Image.effect_noise((8, 8), 90), model)
    found = measure(model, [picture], [4])
    tape = vitral.watch(model, [picture])
    np.testing.assert_allclose(found["attention"][0, 1], look.attention(tape, block=1).grid, atol=1e-6)
    np.testing.assert_allclose(found["classes"][0], look.relevance(tape, target=4).grid, atol=1e-6)
    np.testing.assert_allclose(found["lens"][0], look.lens(tape).probabilities[:, 4], atol=1e-6)
    np.testing.assert_allclose(found["distance"], look.distance(tape).values, atol=1e-5)


def test_a_model_without_classes(tmp_path) -> None:
    found = film(make_run(tmp_path / "run", classes=0).path, count=1, formats=["gif"])
    assert set(found.parts) == {"attention", "positions", "filters", "distance"}
    assert found.notes == ("no lens and no class maps: this model has no classes",)


def test_a_pretraining_shows_pictures_that_lie_in_no_class_folder(tmp_path) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(40):
        Image.effect_noise((8, 8), 10 + number).save(tmp_path / "photos" / f"{number}.png")
    run = make_run(tmp_path / "run", classes=0, base=pretraining(f"folder:{tmp_path / 'photos'}"))
    found = film(run.path, count=2, formats=["gif"])
    watched = json.loads((found.folder / "sheet.json").read_text())["pictures"]
    assert len(watched) == 2 and all((tmp_path / "photos" / picture["source"]).is_file() for picture in watched)


def test_filters_keep_their_places_and_signs() -> None:
    last = np.random.default_rng(0).normal(size=(6, 3, 3))
    mixed = last[[3, 0, 5, 1, 4, 2]] * np.array([1, -1, 1, -1, -1, 1])[:, None, None]
    np.testing.assert_allclose(steady(np.stack([mixed, last]))[0], last)


def test_a_run_without_snapshots_says_how_to_get_some(tmp_path) -> None:
    run = make_run(tmp_path / "run", steps=())
    with pytest.raises(vitral.VitralError, match=f"vitral train {run.path} --snapshots"):
        film(run.path)
    with pytest.raises(vitral.VitralError, match="format"):
        film(run.path, formats=["avi"])


def test_snapshots_are_planned() -> None:
    config = RunConfig("digits", ModelConfig(**MODEL), DataConfig("digits"), TrainConfig(snapshots=5, epochs=2, threads=1))
    found = plan(config)
    assert found.snapshots == 5
    size = 4 * found.parameters
    assert size < found.snapshot_bytes / 5 < size + 20_000
    assert "snapshots" in found.text() and "vitral film RUN" in found.text()
