from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.train.stops import stopped_after

from vitral.base.errors import UsageError
from vitral.cli.train import flags, parse, run
from vitral.config import TrainConfig
from vitral.config.flags import documents
from vitral.presets.runs import RUNS
from vitral.run.folder import RunFolder

FLAGS = (
    "run",
    "data",
    "validation",
    "stage",
    "subset",
    "augment",
    "workers",
    "cache",
    "on_bad_image",
    "fingerprint",
    "class_weights",
    "model",
    "image_size",
    "patch_size",
    "weights",
    "tune",
    "epochs",
    "max_seconds",
    "batch_size",
    "accumulate",
    "optimizer",
    "lr",
    "weight_decay",
    "schedule",
    "warmup",
    "layer_decay",
    "clip",
    "label_smoothing",
    "ema",
    "keep",
    "patience",
    "teacher",
    "token_drop",
    "token_drop_until",
    "head_start",
    "precision",
    "compile",
    "device",
    "threads",
    "seed",
    "evaluate_every",
    "checkpoint_every",
    "snapshots",
    "strategy",
    "tensorboard",
    "wandb",
    "set",
    "name",
    "out",
    "resume",
    "quiet",
    "json",
)


def config_of(*arguments: str) -> Any:
    return parse(list(arguments))[0]


def test_no_flag_is_lost():
    names = {flag.names[0].removeprefix("--").replace("-", "_") for flag in flags()}
    assert {*FLAGS} - {"run", "weights"} | {"RUN", "from"} <= names


def test_without_flags_a_run_is_its_preset():
    for name, preset in RUNS.items():
        called = "photos" if preset.data.name == "folder:photos" else name  # a start for anybody's own pictures
        assert config_of(name) == dataclasses.replace(preset, name=called)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("digits", "--data", "folder:my pictures/Pets"), "Pets"),
        (("finetune", "--data", "csv:photos/labels.csv"), "labels"),
        (("digits", "--data", "mnist"), "mnist"),
        (("cifar10", "--data", "hf:some/set"), "some-set"),
        (("cifar10", "--data", "folder:pets", "--name", "mine"), "mine"),
    ],
)
def test_a_run_on_other_data_is_named_after_it(arguments: tuple[str, ...], name: str):
    """A preset is only where it starts: photographs are no digits."""
    assert config_of(*arguments).name == name


def test_flags_and_settings_replace_fields_wherever_they_live():
    config = config_of(
        "digits",
        "--epochs",
        "3",
        "--clip",
        "None",
        "--data",
        "mnist",
        "--set",
        "qk_norm=false",
        "betas=0.8,0.9",
        "mixup=0.5",
    )
    assert config.train.epochs == 3 and config.train.clip is None and config.data.name == "mnist"
    assert config.model.qk_norm is False and config.train.betas == (0.8, 0.9) and config.data.mixup == 0.5
    assert config_of("digits", "--from", "x").weights == "x"
    sized = config_of("cifar10", "--model", "s/4", "--image-size", "64")
    assert sized.model.width == 384 and sized.model.image_size == (64, 64)
    assert config_of("cifar10", "--model", "cnn").model.family == "cnn"
    assert config_of("cifar10", "--model", "h/14").model.left_open == ("image_size", "channels", "classes")
    assert config_of("report-mnist", "--model", "s/4").model.image_size == (32, 32)  # what the run asks for holds for every model
    assert config_of("cifar10", "--patch-size", "8").model.stride is None
    for settings in (["pool=class", "class_token=true"], ["class_token=true", "pool=class"]):
        assert config_of("digits", "--set", *settings).model.pool == "class"


def test_settings_given_one_by_one_all_count():
    one_by_one = ["--set", "width=32", "depth=2", "--epochs", "3", "--set", "qk_norm=false", "--set=mlp_width=48"]
    config = config_of("digits", *one_by_one)
    assert (config.model.width, config.model.depth, config.model.mlp_width, config.model.qk_norm) == (32, 2, 48, False)
    assert config.train.epochs == 3


def test_a_switch_that_is_on_may_be_switched_on(monkeypatch: pytest.MonkeyPatch):
    """The same command with --resume: the run's own settings are the defaults then."""
    on = dataclasses.replace(RUNS["digits"], train=dataclasses.replace(RUNS["digits"].train, tensorboard=True))
    assert config_of("digits", "--tensorboard").train.tensorboard and not config_of("digits", "--no-tensorboard").train.tensorboard
    monkeypatch.setitem(RUNS, "digits", on)
    for words, expected in ((["--tensorboard"], True), (["--no-tensorboard"], False), ([], True)):
        assert config_of("digits", *words).train.tensorboard is expected


def test_none_may_be_written_small_where_there_can_be_no_value():
    assert config_of("digits", "--ema", "none").train.ema is None
    assert config_of("digits", "--clip=none", "--from", "none").weights is None
    assert config_of("digits", "--augment", "none").data.augment == "none"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "needs the name of a run"),
        (["digts"], "digits"),
        (["digits", "--epochs", "many"], "--epochs"),
        (["digits", "--optimizer", "lion"], "adamw"),
        (["digits", "--set", "widht=3"], "width"),
        (["digits", "--set", "width"], "name=value"),
        (["digits", "--set", "norm=batch"], "one of layer, rms"),
        (["digits", "--set", "width=65"], "heads"),
        (["digits", "--image-size", "1", "2", "3"], "a size of 3 numbers"),
    ],
)
def test_wrong_use_is_one_line_that_helps(arguments: list[str], words: str):
    with pytest.raises(UsageError) as caught:
        config_of(*arguments)
    assert words in str(caught.value) and "\n" not in str(caught.value) and caught.value.exit_code == 2


def test_help_has_examples_and_the_words_under_each_field(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stop:
        parse(["digits", "--help"])
    shown = capsys.readouterr().out
    assert stop.value.code == 0 and "vitral train digits --out runs/digits --resume" in shown and "--resume" in shown
    assert documents(TrainConfig)["epochs"].startswith("Epochs")


def test_a_whole_run_from_the_command_line_and_its_resumption(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = str(tmp_path / "run")
    small = ["--set", "width=16", "depth=1", "mlp_width=16"]
    arguments = ["digits", "--epochs", "0.2", "--device", "cpu", "--threads", "1", "--out", folder, "--quiet", "--json", *small]
    assert run(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["split"] == "test" and result["path"] == folder
    # The folder knows its settings: they need not be repeated.
    assert run(["digits", "--out", folder, "--resume", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == result["accuracy"]
    assert run([*arguments, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == result["accuracy"]
    for other, words in (
        (["--epochs", "0.4"], "epochs = 0.2, not 0.4"),
        (["--set", "depth=2"], "depth = 1, not 2"),
        (["--model", "cnn"], "family"),
    ):
        with pytest.raises(UsageError, match=f"was begun with {words}"):
            run(["digits", "--out", folder, "--resume", "--quiet", *other])
    assert config_of("digits") == RUNS["digits"]

    from vitral.cli.eval import run as evaluate
    from vitral.cli.plan import run as plan

    assert evaluate([folder, "digits", "--device", "cpu", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["top1"] == pytest.approx(result["accuracy"]) and figures["pictures"] == sum(map(sum, figures["confusion"]))
    assert evaluate([folder, "digits", "--device", "cpu"]) == 0
    assert "top-1" in capsys.readouterr().out
    assert plan(["digits", "--gpu", "a100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"] is False


@pytest.mark.parametrize("asked", ["--model cnn", "--patch-size 8", "--set depth=3"])
def test_weights_and_another_model_contradict_each_other(asked: str) -> None:
    with pytest.raises(UsageError, match=rf"^{asked.split('=')[0].removesuffix(' cnn').removesuffix(' 8')} "):
        parse(["digits", "--from", "w.safetensors", *asked.split()])[0]
    assert parse(["finetune", "--from", "None", *asked.split()])[0].weights is None
    assert parse(["digits", "--from", "w.safetensors", "--image-size", "16", "--set", "drop_path=0.2"])[0].model.drop_path == 0.2
    assert parse(["digits", "--from", "w.safetensors", "--set", "gradient_checkpointing=true"])[0].model.gradient_checkpointing


def test_a_named_model_goes_on_with_the_same_command(tmp_path: Path):
    """It knows nothing of the data's classes and channels; the run does."""
    arguments = ["digits", "--model", "cnn", "--epochs", "0.1", "--optimizer", "adamw", "--out", str(tmp_path / "run")]
    arguments += ["--device", "cpu", "--threads", "1", "--quiet"]
    assert run(arguments) == 0
    assert run([*arguments, "--resume"]) == 0


SMALL = ["--device", "cpu", "--threads", "1", "--quiet", "--set", "width=16", "depth=1", "mlp_width=16"]


def test_resume_auto_begins_or_goes_on_and_is_content_with_a_finished_run(tmp_path: Path):
    folder = tmp_path / "run"
    line = ["digits", "--epochs", "0.2", "--out", str(folder), "--resume", "auto", *SMALL]
    with stopped_after(1):
        run(line)  # begins
    assert RunFolder.open(folder).asked.command == shlex.join(["vitral", "train", *line])  # type: ignore[union-attr]
    assert run(line) == 0 and RunFolder.open(folder).finished  # goes on
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert run(line) == 0 and run(["digits", "--out", str(folder), "--resume=auto", "--quiet"]) == 0  # there is nothing to do
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(UsageError, match="--resume"):
        run(["digits", "--out", str(tmp_path / "none"), "--resume", *SMALL])
    with pytest.raises(UsageError, match="'always'"):
        run(["digits", "--resume=always"])


def test_a_finished_run_is_extended_from_its_weights_by_the_line_that_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "run"
    assert run(["digits", "--epochs", "1", "--out", str(folder), *SMALL]) == 0
    with pytest.raises(UsageError, match="vitral train") as caught:
        run([str(folder), "--resume", "--epochs", "2"])  # the folder names the run, too
    said = shlex.split(str(caught.value).partition("of its own: vitral train ")[2].replace("MORE", "0.5"))
    capsys.readouterr()
    assert run([*said]) == 0
    shown = capsys.readouterr().err
    assert f"trains on from the final weights of {folder} (1 epoch) with a fresh linear schedule over 0.5 epochs" in shown
    assert "their head is kept" in shown
    first, more = RunFolder.open(folder), RunFolder.open(f"{folder}-more")
    assert more.settled.weights == str(folder) and more.settled.train.epochs == 0.5 and more.settled.model == first.settled.model
    assert first.settled.data == more.settled.data and first.finished and more.finished
