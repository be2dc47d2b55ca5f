"""Faults that collapse are found within the first quarter of a short run, with their cause; healthy runs raise no alarm."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from vitral.base.errors import FailedError
from vitral.config import RunConfig
from vitral.data.images.augment import Augment
from vitral.presets.runs import pretraining
from vitral.train.collapse import collapsed
from vitral.train.fit import Run, fit
from vitral.train.tasks.projection import Projection

from .stops import after_steps, seconds_per_step, stopped_after

STEPS = 80
SMALL = {"projection": 16, "projection_hidden": 64, "prototypes": 64, "decoder_width": 32, "decoder_depth": 1, "directions": 64}
# Views that differ more and a start that knows less than the preset's: what collapses is told from what is healthy by more.
VIEWS = {"local_views": 2, "global_scale": (0.5, 1.0), "local_scale": (0.3, 0.8), "colour": 1.0, "turn": 15.0}
REBUILT = {"global_scale": (0.35, 1.0), "turn": 15.0}
START = {"initialisation": "zero", "pool": "mean", "class_token": False}


def short(method: Any, lr: float = 2e-3, seed: int = 0, **settings: Any) -> RunConfig:
    """80 steps on digits; 20 looks at the embeddings, 5 of them in the first quarter."""
    config = pretraining("digits", method)
    assert config.pretrain is not None
    model = dataclasses.replace(config.model, width=32, depth=2, heads=2, mlp_width=64, **START)
    settings = (REBUILT if method == "mae" else VIEWS) | settings
    train = dataclasses.replace(config.train, epochs=8.0, batch_size=128, threads=1, device="cpu", evaluate_every=0.4, ema=None)
    train = dataclasses.replace(train, optimizer="adamw", lr=lr, seed=seed)
    return dataclasses.replace(config, model=model, train=train, pretrain=dataclasses.replace(config.pretrain, **(SMALL | settings)))


def constant_input(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Augment.__call__
    monkeypatch.setattr(Augment, "__call__", lambda self, images, u: made(self, images, u) * self.single)


def tied(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Projection.forward
    monkeypatch.setattr(Projection, "forward", lambda self, features: 0 * forward(self, features) + 1)


def nothing(_: pytest.MonkeyPatch) -> None: ...


# A head normalised over the batch keeps such a run from collapsing: it ends with 0.13 of its first uniformity, poor and no point.
ALIKE = {"centre_momentum": 1.0, "target_temperature": 0.1, "first_target_temperature": 0.1, "head_norm": "none"}
FAULTS = {
    "no centring, no sharpening": (short("dino", seed=4, **ALIKE), nothing, r"no centring .* no sharpening"),
    "weight 0": (short("lejepa", gaussian_weight=0.0), nothing, "gaussian_weight = 0"),
    "lr x 100": (short("dino", lr=0.2), nothing, r"a step is as large as the weights .*: use --lr"),
    "constant input": (short("lejepa"), constant_input, "the pictures are all alike"),
    "a teacher that copies": (short("dino", teacher_momentum=0.0, **ALIKE), nothing, "the teacher copies its student"),
    "tied to a constant": (short("lejepa"), tied, "tied to a constant"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_in_the_first_quarter_with_its_cause(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, spoil, words = FAULTS[fault]
    spoil(monkeypatch)
    assert config.pretrain is not None
    stops = dataclasses.replace(config, pretrain=dataclasses.replace(config.pretrain, on_collapse="stop"))
    with pytest.raises(FailedError, match=r"at step (4|8|12|16|20):") as caught:
        fit(stops, out=tmp_path / "run", quiet=True)
    import re

    assert re.search(words, str(caught.value)), caught.value


@pytest.mark.parametrize("by", ["steps", "the clock"])
def test_it_is_found_there_too_when_a_validation_is_due_after_the_end(by: str, tmp_path: Path) -> None:
    """Five epochs of many pictures may be more than the whole run. A step takes a second here, and 80 of them are the budget."""
    config = FAULTS["weight 0"][0]
    assert config.pretrain is not None
    train = dataclasses.replace(config.train, evaluate_every=50.0)
    if by == "the clock":
        train = dataclasses.replace(train, epochs=1e6, max_seconds=float(STEPS))
    with pytest.raises(FailedError, match="step 20: gaussian_weight = 0"), seconds_per_step():
        fit(
            dataclasses.replace(config, train=train, pretrain=dataclasses.replace(config.pretrain, on_collapse="stop")),
            tmp_path / "run",
            quiet=True,
        )


def test_a_run_that_is_gone_on_with_raises_the_same_alarm(tmp_path: Path) -> None:
    """It shows in two looks one after the other, also when a stop lies between them or the journal is ahead of the state."""
    config = FAULTS["weight 0"][0]
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, epochs=4.0, checkpoint_every=1000.0))
    whole = alarms(fit(config, tmp_path / "whole", quiet=True))
    assert whole and whole[0] > 4

    def killed(steps: int) -> None:
        if steps == whole[0] + 1:
            raise RuntimeError("killed")

    with stopped_after(whole[0] - 1):
        fit(config, tmp_path / "stopped", quiet=True)
    with pytest.raises(RuntimeError, match="killed"), after_steps(killed):
        fit(config, tmp_path / "killed", quiet=True)
    for name in ("stopped", "killed"):
        assert alarms(fit(config, tmp_path / name, resume=True, quiet=True)) == whole, name


def alarms(run: Run) -> list[int]:
    return [line["step"] for line in run.metrics if "collapsed" in line]


def look_at_the_end(run: Run) -> dict[str, Any]:
    return run.metrics[-1]


def test_a_warning_is_said_once_and_kept_in_the_journal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = fit(dataclasses.replace(FAULTS["weight 0"][0]), out=tmp_path / "run", quiet=True)
    assert capfd.readouterr().err.count("have collapsed at step") == 1
    assert "gaussian_weight" in look_at_the_end(run)["collapsed"]


@pytest.mark.parametrize(
    ("apart", "found"),
    [
        # Uniformity every 5 steps of pretrain-digits, measured: a healthy run is all but a point in its first steps, and comes back.
        ((0.067167, 0.000323, 0.000673, 0.00176, 0.00252, 0.004087, 0.005955, 0.011071, 0.022263), False),
        ((0.067167, 0.001741, 0.000526, 0.000342, 0.000272, 0.000288, 0.000314), True),  # neither centred nor sharpened
        ((0.067167, 0.000638, 0.00018, 6.5e-05, 3.5e-05, 2.5e-05, 1.9e-05), True),  # and a teacher that copies
        ((0.067167, 0.0, 0.0, 1e-06, 0.0, 0.0), True),  # lr x 100
    ],
)
def test_dino_may_begin_near_a_point_if_it_comes_back(apart: tuple[float, ...], found: bool) -> None:
    run, rest = short("dino", head_norm="none"), {"spread": 2e-5, "input_spread": 0.7, "weight_size": 0.1, "feature_spread": 0.07}
    looks = [{"uniformity": -each, "teacher_entropy": 0.960, "teacher_entropy_of_mean": 0.963, **rest} for each in apart]
    doubts = [collapsed(run, looks[0], now, before) is not None for before, now in pairwise(looks)]
    assert any(one and two for one, two in pairwise(doubts)) == found, "two looks one after the other raise the alarm"


@pytest.mark.parametrize(("apart", "found"), [((2.557, 1.797, 1.269, 1.038), False), ((2.557, 0.137, 0.128, 0.145), True)])
def test_answers_of_a_normalised_head_keep_apart(apart: tuple[float, ...], found: bool) -> None:
    """Uniformity of `short`, measured: healthy, and at 100 times the learning rate."""
    run, rest = short("dino"), {"spread": 2e-3, "input_spread": 0.7, "weight_size": 0.1, "feature_spread": 0.07}
    looks = [{"uniformity": -each, "teacher_entropy": 0.5, "teacher_entropy_of_mean": 0.9, **rest} for each in apart]
    assert [collapsed(run, looks[0], now, before) is not None for before, now in pairwise(looks)] == [found] * 3


def test_a_masked_autoencoder_may_lose_a_third_of_its_first_directions_but_not_all() -> None:
    """Feature ranks of pretrain-digits, measured: those of random weights are noise, and go."""
    run, rest = pretraining("digits", "mae"), {"spread": 0.06, "uniformity": -0.02, "input_spread": 0.7, "weight_size": 0.1}
    ranks = {name: {"feature_rank": rank, "feature_spread": 0.06, **rest} for name, rank in (("first", 43.6), ("low", 29.8), ("gone", 6.0))}
    assert collapsed(run, ranks["first"], ranks["low"]) is None
    assert "draw together" in str(collapsed(run, ranks["first"], ranks["gone"]))


def test_few_directions_left_are_a_collapse_too(tmp_path: Path) -> None:
    """A test for a Gaussian that is too weak beside the pull keeps one direction of embeddings that never grow: poor, not yet a point."""
    run = fit(short("lejepa", gaussian_weight=0.005), out=tmp_path / "run", quiet=True)
    found = [line["step"] for line in run.metrics if "collapsed" in line]
    assert found and found[0] <= 60 and "gaussian_weight = 0.005: too little keeps" in look_at_the_end(run)["collapsed"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_these_faults_do_collapse(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Effective rank at the end, after twice the steps that found them, below 5 % of the healthy run's."""
    config, spoil, _ = FAULTS[fault]
    assert config.pretrain is not None
    longer = dataclasses.replace(config.train, epochs=2 * config.train.epochs)
    healthy = fit(short(config.pretrain.method, head_norm=config.pretrain.head_norm), out=tmp_path / "healthy", quiet=True)
    spoil(monkeypatch)
    spoilt = fit(dataclasses.replace(config, train=longer), out=tmp_path / "spoilt", quiet=True)
    assert look_at_the_end(spoilt)["effective_rank"] < 0.05 * look_at_the_end(healthy)["effective_rank"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lejepa", "dino", "mae"])
def test_no_alarm_in_healthy_runs(method: str, tmp_path: Path) -> None:
    """7 seeds of each of 3 methods."""
    for seed in range(7):
        run = fit(short(method, seed=seed), out=tmp_path / f"{seed}", quiet=True)
        assert not any("collapsed" in line for line in run.metrics), (method, seed)
