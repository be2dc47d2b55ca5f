from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest
import torch

from vitral.build import create
from vitral.cli.train import parse
from vitral.config import RunConfig
from vitral.presets.models import model
from vitral.presets.runs import RUNS, change
from vitral.report.command import training_command
from vitral.train.prepare import prepare
from vitral.weights.checkpoint import save

DIGITS = RUNS["digits"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (DIGITS, "vitral train digits"),
        (change(DIGITS, epochs=3, seed=7), "vitral train digits --set epochs=3 seed=7"),
        (change(DIGITS, name="mine", lr=1e-3, compile="no", ema=None), None),
        (dataclasses.replace(DIGITS, weights="runs/my run"), "vitral train digits --from 'runs/my run'"),
        (
            dataclasses.replace(DIGITS, model=dataclasses.replace(DIGITS.model, width=96, qk_norm=True, layer_scale=1e-5, stride=(1, 1))),
            None,
        ),
        (dataclasses.replace(DIGITS, model=model("tiny", image_size=8, channels=1)), None),
        (dataclasses.replace(DIGITS, data=dataclasses.replace(DIGITS.data, name="folder:photos", augment="none", subset=100)), None),
    ],
)
def test_the_command_gives_the_same_settings(config: RunConfig, expected: str | None) -> None:
    command = training_command(config)
    if expected:
        assert command == expected
    program, verb, *arguments = shlex.split(command)
    assert (program, verb) == ("vitral", "train")
    assert parse(arguments).config() == config


@pytest.mark.parametrize("name", ["digits", "cifar10"])
def test_a_run_from_weights_can_be_trained_again(name: str, tmp_path: Path) -> None:
    """Its config has the model of the weights, about which the command line may say hardly anything."""
    weights = save(create("tiny", classes=7, image_size=16, channels=1), tmp_path / "weights")
    asked = parse([name, "--data", "digits", "--from", str(weights), "--set", "drop_path=0.2", "--optimizer", "adamw"]).config()
    settled = prepare(asked, torch.device("cpu")).config
    again = parse(shlex.split(training_command(settled))[2:]).config()
    assert prepare(again, torch.device("cpu")).config.model == settled.model
    assert (again.train, again.data, again.weights) == (settled.train, settled.data, settled.weights)


def test_a_size_that_was_asked_for_stays_asked_for() -> None:
    config = parse(["cifar10", "--data", "folder:photos", "--image-size", "32"]).config()
    assert parse(shlex.split(training_command(config))[2:]).config() == config


def test_every_named_run_is_its_own_command() -> None:
    for name, config in RUNS.items():
        assert training_command(config) == f"vitral train {name}"
