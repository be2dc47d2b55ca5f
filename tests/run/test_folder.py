"""What a run folder holds, and what a resumed run may change."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.train.stops import signalled_after

from vitral.base.errors import DataError, Stopped, UsageError
from vitral.base.origin import Origin
from vitral.cli.train import parse
from vitral.cli.train import run as train
from vitral.config import DataConfig, RunConfig
from vitral.presets import runs
from vitral.presets.runs import change, run
from vitral.run.folder import Asked, RunFolder
from vitral.run.journal import read_metrics
from vitral.train.fit import Run, fit


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(10):
            Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / "photos" / name / f"{index}.png")
    return tmp_path / "photos"


def small(photos: Path, **changes: Any) -> RunConfig:
    settings: dict[str, Any] = {"epochs": 4.0, "batch_size": 4, "threads": 1, "device": "cpu", "data": DataConfig(name=f"folder:{photos}")}
    return change(run("digits"), **(settings | changes))


@pytest.fixture
def interrupt() -> Any:
    """A function that begins a run and stops it at its second step."""

    def begin(config: RunConfig, out: Path | None = None, run: str | None = None) -> str:
        with pytest.raises(Stopped) as stopped, signalled_after(2):
            fit(config, out=out, quiet=True, run=run)
        return stopped.value.hint

    return begin


def test_other_classes_are_not_gone_on_with(photos: Path, tmp_path: Path, interrupt: Any):
    out, config = tmp_path / "run", small(photos)
    interrupt(config, out)
    (photos / "dog").rename(photos / "wolf")
    with pytest.raises(DataError, match="without dog, with wolf"):
        fit(config, out=out, resume=True, quiet=True)
    (photos / "wolf").rename(photos / "dog")
    (photos / "bird").mkdir()
    (photos / "cat" / "0.png").rename(photos / "bird" / "0.png")
    with pytest.raises(DataError, match=r"\(with bird\)"):
        fit(config, out=out, resume=True, quiet=True)
    (photos / "bird" / "0.png").rename(photos / "cat" / "0.png")
    (photos / "bird").rmdir()
    assert fit(config, out=out, resume=True, quiet=True).test["split"] == "test"


def test_other_pictures_are_not_gone_on_with(photos: Path, tmp_path: Path, interrupt: Any):
    out, config = tmp_path / "run", small(photos)
    interrupt(config, out)
    for number in range(10, 14):
        (photos / "cat" / f"{number}.png").write_bytes((photos / "cat" / "0.png").read_bytes())
    with pytest.raises(DataError, match=r"14 .*17"):
        fit(config, out=out, resume=True, quiet=True)


def test_a_bad_test_picture_can_be_passed_over_when_the_training_is_done(photos: Path, tmp_path: Path, interrupt: Any):
    for name in ("cat", "dog"):
        (photos / "train").mkdir(exist_ok=True)
        (photos / name).rename(photos / "train" / name)
        shutil.copytree(photos / "train" / name, photos / "test" / name)
    bad = photos / "test" / "cat" / "0.png"
    bad.write_bytes(bad.read_bytes()[:-40])
    out, config = tmp_path / "run", small(photos, batch_size=8)
    skipping = dataclasses.replace(config, data=dataclasses.replace(config.data, on_bad_image="skip"))
    interrupt(config, out)
    with pytest.raises(UsageError, match="on_bad_image = fail"):
        fit(skipping, out=out, resume=True, quiet=True)
    with pytest.raises(DataError, match=r"0\.png"):
        fit(config, out=out, resume=True, quiet=True)
    steps = read_metrics(out / "metrics.jsonl")[-1]["step"]
    result = fit(skipping, out=out, resume=True, quiet=True)
    assert result.test["split"] == "test" and result.test["step"] == steps
    assert len(np.load(out / "test.npz")["labels"]) == 19


def with_model(config: RunConfig, **changes: Any) -> RunConfig:
    return dataclasses.replace(config, model=dataclasses.replace(config.model, **changes))


def test_another_model_is_not_gone_on_with(photos: Path, tmp_path: Path, interrupt: Any):
    out, config = tmp_path / "run", small(photos)
    interrupt(config, out)
    stored = RunFolder.open(out).settled
    assert stored.model != config.model and config.model.left_open and not stored.model.left_open
    for asked, words in (
        (with_model(config, depth=2), "depth = 4, not 2"),
        (with_model(config, image_size=(16, 16)), r"image_size = \(8, 8\), not \(16, 16\)"),
        (with_model(config, patch_size=(4, 4)), r"patch_size = \(2, 2\), not \(4, 4\)"),
        (dataclasses.replace(config, weights="w.safetensors"), "weights = None, not w.safetensors"),
        (with_model(config, channels=1), "channels = 3, not 1"),
    ):
        with pytest.raises(UsageError, match=f"was begun with {words}"):
            fit(asked, out=out, resume=True, quiet=True)
    for same in (config, stored):
        assert RunFolder.open(out).going_on(same) == stored
    assert fit(config, out=out, resume=True, quiet=True).test["split"] == "test"


def test_weights_go_on_as_they_began(trained: Run, tmp_path: Path, interrupt: Any):
    out = tmp_path / "run"
    config = run("digits", epochs=1.0, batch_size=64, threads=1, device="cpu")
    config = dataclasses.replace(config, weights=str(trained.path))
    interrupt(config, out)
    stored = RunFolder.open(out).settled
    assert stored.model.width != config.model.width  # the weights say what the model is
    for asked, words in (
        (with_model(config, image_size=(16, 16)), "image_size"),
        (with_model(config, dropout=0.3), "dropout = 0.0, not 0.3"),
        (dataclasses.replace(config, weights=None), "weights"),
    ):
        with pytest.raises(UsageError, match=f"was begun with {words}"):
            fit(asked, out=out, resume=True, quiet=True)
    for same in (config, stored):
        assert RunFolder.open(out).going_on(same) == stored
    assert fit(config, out=out, resume=True, quiet=True).test["split"] == "test"


def test_grown_patches_go_on_with_the_same_command(tmp_path: Path, interrupt: Any):
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(8):
            Image.fromarray(draw.integers(0, 256, (200, 200, 3), dtype=np.uint8)).save(tmp_path / "photos" / name / f"{index}.png")
    common = ["digits", "--data", f"folder:{tmp_path / 'photos'}", "--set", "batch_size=4", "--epochs", "2", "--device", "cpu"]
    common += ["--threads", "1", "--quiet", "--out"]
    for number, flags in enumerate((["--patch-size", "4"], ["--model", "tiny", "--optimizer", "adamw"])):
        words = [*common, str(tmp_path / str(number)), *flags]
        interrupt(parse(words)[0], tmp_path / str(number), run="digits")
        model = RunFolder.open(tmp_path / str(number)).settled.model
        assert model.image_size == (224, 224) and model.patch_size == (14, 14)
        assert train([*words, "--resume"]) == 0


def test_the_command_line_finds_the_folder_and_its_settings(photos: Path, tmp_path: Path, interrupt: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    begun = ["digits", "--data", f"folder:{photos}", "--name", "foo", "--set", "depth=2", "batch_size=4", "--epochs", "1"]
    interrupt(parse([*begun, "--device", "cpu", "--threads", "1"])[0], run="digits")
    for words, refusal in (
        (["digits", "--name", "foo", "--set", "depth=3"], "depth = 2, not 3"),
        (["digits", "--name", "foo", "--image-size", "16"], "image_size"),
        (["digits", "--name", "foo", "--from", "w.safetensors"], "weights"),
        (["foo", "--epochs", "2"], "epochs = 1.0, not 2.0"),
        (["cifar10", "--name", "foo"], "runs/foo holds a training of digits, not of cifar10"),
        (["cifar10", "--out", "runs/foo"], "runs/foo holds a training of digits, not of cifar10"),
    ):
        with pytest.raises(UsageError, match=refusal):
            train([*words, "--resume", "--quiet"])
    for words in (["foo"], ["digits", "--out", "runs/foo"], [*begun, "--device", "cpu", "--threads", "1"]):
        assert train([*words, "--resume", "--quiet"]) == 0


@pytest.mark.parametrize("name", ["foo", "demo", "digits"])
def test_what_is_said_about_going_on_works(name: str, photos: Path, tmp_path: Path, interrupt: Any):
    hint = interrupt(small(photos, name=name), tmp_path / "my runs" / name)
    words = shlex.split(hint.removeprefix("go on with: "))
    assert words[:2] == ["vitral", "train"] and train([*words[2:], "--quiet"]) == 0


def test_a_preset_that_is_edited_changes_no_run_that_has_begun(
    photos: Path, tmp_path: Path, interrupt: Any, monkeypatch: pytest.MonkeyPatch
):
    words = ["digits", "--data", f"folder:{photos}", "--set", "batch_size=4", "--epochs", "4", "--device", "cpu", "--threads", "1", "--out"]
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    assert train([*words, str(whole), "--quiet"]) == 0
    interrupt(parse([*words, str(halves)])[0], halves, run="digits")
    edited = change(run("digits"), lr=1.0, ema=None, augment="none", label_smoothing=0.5)
    edited = dataclasses.replace(edited, model=dataclasses.replace(edited.model, depth=1, width=16, heads=2, patch_size=(4, 4)))
    monkeypatch.setitem(runs.RUNS, "digits", edited)
    assert train(["digits", "--out", str(halves), "--resume", "--quiet"]) == 0
    one, two = ((folder / "model.safetensors").read_bytes() for folder in (whole, halves))
    assert one == two
    assert RunFolder.open(halves).settled == RunFolder.open(whole).settled


def test_asked_settled_and_the_command_lie_side_by_side(photos: Path, tmp_path: Path):
    out = tmp_path / "my run"
    words = [
        "digits",
        "--data",
        f"folder:{photos}",
        "--epochs",
        "0.5",
        "--set",
        "batch_size=4",
        "--device",
        "cpu",
        "--out",
        str(out),
        "--quiet",
    ]
    assert train(words) == 0
    folder = RunFolder.open(out)
    assert folder.asked is not None and folder.finished
    assert folder.asked.config.model.left_open == ("image_size", "channels", "classes")
    assert (folder.settled.model.image_size, folder.settled.model.channels, folder.settled.model.classes) == ((8, 8), 3, 2)
    assert folder.asked.run == "digits" and shlex.split(folder.command or "")[2:] == words
    assert parse(shlex.split(folder.command or "")[2:])[0] == folder.asked.config
    again = parse([str(out), "--seed", "3"])[0]
    assert again == change(folder.asked.config, seed=3)
    answers = folder.answers()
    assert len(answers.predictions) == len(answers.labels) == len(answers.paths) == json.loads((out / "test.json").read_text())["pictures"]


def test_a_run_from_python_is_trained_again_by_its_folder(photos: Path, tmp_path: Path):
    config = small(photos, epochs=0.5)
    path = fit(config, out=tmp_path / "run", quiet=True).path
    command = shlex.split(RunFolder.open(path).command or "")
    assert command == ["vitral", "train", str(path)] and parse(command[2:])[0] == config


def test_two_runs_of_one_name_get_two_folders_and_one_folder_takes_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    config = run("digits")
    settled = with_model(config, image_size=(8, 8), channels=1, classes=10)
    asked = Asked(config, "digits")
    made = [RunFolder.create(None, asked, settled, Origin()) for _ in range(3)]
    assert [folder.path.as_posix() for folder in made] == ["runs/digits", "runs/digits-2", "runs/digits-3"]
    with pytest.raises(UsageError, match=f"in use .*{os.getpid()}"):
        RunFolder.create("runs/digits", asked, settled, Origin())
    for folder in made:
        folder.close()
    with pytest.raises(UsageError, match="--resume"):
        RunFolder.create("runs/digits", asked, settled, Origin())
    assert RunFolder.newest("digits").path.name == "digits-3"


def test_a_folder_that_does_not_say_what_was_asked_for_is_read_but_not_resumed(tmp_path: Path, trained: Run):
    old = tmp_path / "old"
    shutil.copytree(trained.path, old)
    (old / "asked.json").unlink()
    folder = RunFolder.open(old)
    assert folder.asked is None and folder.command is None and folder.finished
    with pytest.raises(UsageError, match=r"has no asked\.json"):
        fit(folder.settled, out=old, resume=True, quiet=True)
    with pytest.raises(UsageError, match=r"has no asked\.json"):
        train(["digits", "--out", str(old), "--resume", "--quiet"])
