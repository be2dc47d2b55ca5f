from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.text import duration
from vitral.build import build, parameter_count
from vitral.config import ModelConfig
from vitral.cost.flops import forward_flops
from vitral.cost.memory import LiveBytes
from vitral.presets.models import model
from vitral.presets.runs import pretraining, run
from vitral.study.fight.forecast import Timing
from vitral.study.plan import busy, held_up, plan
from vitral.train.fit import fit
from vitral.train.prepare import prepare
from vitral.weights.checkpoint import save

RUNS = {
    "many tokens": (
        ModelConfig(image_size=(64, 64), patch_size=(4, 4), width=96, depth=4, heads=3, mlp_width=192),
        {"batch_size": 64, "optimizer": "adamw"},
    ),
    "wide": (
        ModelConfig(image_size=(32, 32), patch_size=(4, 4), width=384, depth=4, heads=6, mlp_width=768),
        {"batch_size": 128, "optimizer": "muon"},
    ),
    "cnn": (ModelConfig(family="cnn", image_size=(32, 32), width=32), {"batch_size": 256, "optimizer": "adamw", "lr": 1e-4}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_planned_memory_comes_true(name: str, tmp_path: Path):
    """Within 15 % of the live tensors' peak; time against its plan is benchmarks/plan.py, where no neighbour disturbs it."""
    network, settings = RUNS[name]
    base = run("digits", threads=1, device="cpu", evaluate_every=1000.0, test=False, checkpoint_every=1e9, epochs=0.3, **settings)
    config = dataclasses.replace(base, name="measured", model=network)
    with LiveBytes() as live:
        fit(config, out=tmp_path / "run", quiet=True)
    assert plan(config).memory.total == pytest.approx(live.most, rel=0.15)


def test_a_named_gpu_is_an_estimate_from_the_table():
    config = dataclasses.replace(run("digits", epochs=2.0, batch_size=64), model=model("s/4", image_size=32))
    result = plan(config, gpu="H200")
    assert not result.measured and result.device == "h200" and "an estimate" in result.text()
    assert result.parameters == parameter_count(dataclasses.replace(config.model, classes=10, channels=3))
    assert result.steps == 40 and result.training_flops == pytest.approx(3 * forward_flops(config.model) * 64 * 40, rel=0.01)
    assert json.loads(json.dumps(result.to_dict()))["memory"]["total"] == result.memory.total
    slower = plan(config, gpu="t4")
    assert slower.seconds > 5 * result.seconds
    with pytest.raises(UsageError, match="h200"):
        plan(config, gpu="h2000")


def test_notes_come_before_the_measuring(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def measure(setup, seconds, quiet):
        said = capsys.readouterr().err.splitlines()
        assert said[0].startswith("note: 64 patches a picture") and said[-1].startswith(
            "measuring steps of 64 pictures on this machine, about a minute"
        )
        return Timing(1.0, 1.0)

    monkeypatch.setattr("vitral.study.plan.time_run", measure)
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.1, 0.1))
    monkeypatch.setattr("vitral.train.advice.MANY", 63)
    config = run("digits", batch_size=64, device="cpu")
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, image_size=(8, 8), patch_size=(1, 1)))
    result = plan(config)
    assert result.notes[0].startswith("64 patches") and "note:" not in result.text() and not capsys.readouterr().err


def test_limited_seconds_hold_fewer_steps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("vitral.study.plan.time_run", lambda setup, seconds, quiet: Timing(0.25, 0.001))
    whole, short = (plan(run("digits", batch_size=64, device="cpu", epochs=50.0, max_seconds=seconds)) for seconds in (None, 3.0))
    assert whole.epochs == 50 and short.steps == 12 and short.seconds == 3 and short.epochs == 12 / (whole.steps / 50)
    assert short.images_per_second == whole.images_per_second == 64 / 0.25
    assert short.training_flops == pytest.approx(whole.training_flops * 12 / whole.steps)
    assert short.evaluation_seconds < whole.evaluation_seconds and "12 of 64 pictures, 0.6 epochs" in short.text()
    assert plan(run("digits", batch_size=64, max_seconds=1.0), gpu="t4").seconds <= 1
    assert plan(run("digits", batch_size=64, epochs=1.0, max_seconds=1e6), gpu="t4").epochs == 1


def test_a_pre_training_is_looked_at_eight_times_at_the_least(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("vitral.study.plan.time_run", lambda setup, seconds, quiet: Timing(0.25, 0.001))
    config = pretraining("digits")

    def looking(epochs: float, every: float) -> float:
        train = dataclasses.replace(config.train, device="cpu", epochs=epochs, evaluate_every=every)
        return plan(dataclasses.replace(config, train=train)).evaluation_seconds

    assert looking(8.0, 50.0) == looking(8.0, 1.0) == pytest.approx(looking(16.0, 1.0) / 2)


def test_a_tuned_head_costs_hardly_more_than_looking():
    config = run("digits", batch_size=64)
    full, head = (
        plan(dataclasses.replace(config, train=dataclasses.replace(config.train, tune=tune)), gpu="h200") for tune in ("all", "head")
    )
    assert full.training_flops == pytest.approx(3 * full.forward_flops * full.pictures * full.steps)
    assert head.training_flops == pytest.approx(full.training_flops / 3, rel=0.01)


def test_data_lie_where_the_loader_puts_them(monkeypatch: pytest.MonkeyPatch):
    """One rule: what a plan counts as data on the device is what the loader keeps there."""
    config = run("digits", batch_size=64)
    held = plan(config, gpu="t4").memory.data
    assert held == prepare(config, torch.device("cpu")).data.train.bytes + prepare(config, torch.device("cpu")).data.validation.bytes
    monkeypatch.setattr("vitral.data.loader.DEVICE_LIMIT", {"cuda": 1000, "cpu": 1 << 30})
    assert plan(config, gpu="t4").memory.data == 0
    assert plan(dataclasses.replace(config, data=dataclasses.replace(config.data, placement="device")), gpu="t4").memory.data == held


def test_time_is_a_range_and_a_busy_machine_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("vitral.study.plan.time_run", lambda setup, seconds, quiet: Timing(0.5, 0.001, spread=(0.25, 1.0)))
    monkeypatch.setattr("os.getloadavg", lambda: (1.8, 1.0, 1.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    planned = plan(run("digits", device="cpu", epochs=10.0))
    assert planned.seconds == 0.5 * planned.steps and planned.seconds_range == (0.25 * planned.steps, 1.0 * planned.steps)
    assert f"{duration(planned.seconds)} ({duration(0.25 * planned.steps)} to {duration(planned.steps)}) training" in planned.text()
    load, factor = "a load of 1.8 on 2 cores before it was timed", "its timings differ by a factor of 4.0"
    assert planned.notes[-1] == f"this machine is busy: {load}, {factor}; alone the run takes less"
    assert planned.notes[-1] in capsys.readouterr().err
    assert busy(0.3, 2, (1.0, 1.1)) == "" and "cores" not in busy(0.3, 2, (1.0, 2.0))
    assert plan(run("digits"), gpu="a100").seconds_range[0] == plan(run("digits"), gpu="a100").seconds


def test_a_run_that_waits_for_its_pictures_is_told_so() -> None:
    alone = held_up(0.004, 0.001, 0, None, 8)
    assert "80 % of a step" in alone and "--workers 4" in alone and "--cache" in alone
    bound = held_up(0.008, 0.001, 2, None, 4)
    assert "decode-bound" in bound and "250 pictures/s" in bound and "1,000/s" in bound and "--workers 4" in bound
    assert "more cores" in held_up(0.008, 0.001, 4, 256, 4)
    assert held_up(0.004, 0.001, 4, None, 8) == "" == held_up(0.0001, 0.001, 0, None, 8)


def test_a_plan_reads_some_pictures_where_they_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    for number in range(24):
        (tmp_path / str(number % 2)).mkdir(exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (90, 80, 3), np.uint8)).save(tmp_path / str(number % 2) / f"{number}.jpg")
    monkeypatch.setattr("vitral.study.plan.SECONDS", 0.0)
    config = run("digits", batch_size=4, device="cpu")
    data = dataclasses.replace(config.data, name=f"folder:{tmp_path}", placement="stream", augment="standard")
    small = ModelConfig(image_size=(16, 16), patch_size=(8, 8), width=16, depth=1, heads=2, mlp_width=16)
    result = plan(dataclasses.replace(config, data=data, model=small))
    assert result.reading_per_second and result.computing_per_second
    assert "pictures/s can be read here" in result.text()
    assert plan(config, gpu="h200").reading_per_second is None, "digits are in memory"


def test_lora_keeps_moments_of_its_thin_matrices_alone(tmp_path: Path):
    network = ModelConfig(image_size=(8, 8), patch_size=(4, 4), channels=1, classes=10, width=64, depth=2, heads=2, mlp_width=128)
    save(build(network), tmp_path / "weights")
    config = dataclasses.replace(run("digits", batch_size=16, threads=1, device="cpu", ema=None), weights=str(tmp_path / "weights"))
    plans = {
        tune: plan(dataclasses.replace(config, train=dataclasses.replace(config.train, tune=tune)), gpu="h100") for tune in ("all", "lora")
    }
    thin = 2 * 8 * ((64 + 192) + (64 + 64)) + 650  # two blocks' qkv and projection, and the head
    assert plans["lora"].trained_parameters == thin and plans["lora"].memory.optimizer == 2 * 4 * thin
    assert plans["lora"].parameters - plans["all"].parameters == thin - 650
    assert plans["lora"].memory.total < plans["all"].memory.total


def test_nothing_is_fetched_to_be_planned(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    monkeypatch.setattr("vitral.data.sources.fetch.PROVIDERS", {})
    monkeypatch.setenv("VITRAL_DATA", str(tmp_path))
    result = plan(run("cifar10", batch_size=512, epochs=100.0), gpu="h200")
    assert result.steps == 9700 and result.notes[0].startswith("cifar10 is not here: planned by the catalogue (50,000 pictures, 10 classes")
    assert capsys.readouterr().err.startswith(f"note: {result.notes[0]}\n")


def test_weights_and_teachers_are_not_fetched_to_be_planned(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("vitral.weights.load.fetch", lambda *_: pytest.fail("a plan fetches nothing"))
    config = run("finetune", weights="timm:vit_tiny_patch16_224", batch_size=64, data=run("digits").data)
    result = plan(config, gpu="h200")
    assert result.parameters == 5_526_346 and "timm:vit_tiny_patch16_224: planned as it is built" in capsys.readouterr().err
    taught = run("digits", device="cpu", batch_size=8, teacher="timm:test_vit")
    monkeypatch.setattr("vitral.study.plan.SECONDS", 0.0)
    assert plan(taught).seconds > 0 and "timm:test_vit: planned as it is built" in capsys.readouterr().err
