"""Forecasts are timed with the real training step."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

import pytest
import torch

from vitral.base.errors import UsageError
from vitral.base.progress import watched
from vitral.presets.runs import run
from vitral.study.fight.forecast import FEWEST, Forecast, Seconds, forecast, median_seconds, time_run
from vitral.train.optim import Muon
from vitral.train.prepare import prepare
from vitral.train.steps import Stepper

sys.path.insert(0, str(Path(__file__).parent))
import drive


def test_each_model_is_forecast_by_its_own_steps() -> None:
    found = forecast(drive.small_scale(), parallel=2, quiet=True)
    assert found.cells == 12 and found.seconds == pytest.approx(sum(found.per_model.values()) / 2)
    assert found.per_model["cnn"] > found.per_model["vit-small"] > 0
    found.check(None)
    found.check(1.0)
    with pytest.raises(UsageError, match=r"max-hours 0\.001"):
        Forecast(18, 60.0, {"cnn": 60.0}).check(0.001)
    assert str(Forecast(0, 0.0, {})) == "nothing is left to run" and "12 cells" in str(found)


def test_the_step_that_is_timed_is_the_run_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, int, float | None]] = []
    real = Stepper.step

    def step(self: Stepper, batch, factor: float, keep: float | None):
        seen.append((any(isinstance(rule, Muon) for rule in self.optimizer.rules), len(batch.labels), keep))
        return real(self, batch, factor, keep)

    monkeypatch.setattr(Stepper, "step", step)
    config = run("digits", batch_size=48, device="cpu", optimizer="muon", token_drop=0.5, token_drop_until=0.75)
    timing = time_run(prepare(config, torch.device("cpu")))
    assert timing.step > timing.image > 0 and timing.peak is None and timing.compiling == 0
    assert all(muon for muon, _, _ in seen) and [images for _, images, _ in seen] == [FEWEST, *[48] * (len(seen) - 1)]
    assert len({keep for _, _, keep in seen}) == 2  # with half of the patches, and with all
    assert timing.timed_batch is None


def test_slow_steps_are_timed_by_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """`vitral plan pretrain-photos` took five minutes on two cores, and said nothing meanwhile."""
    sizes: list[int] = []
    told: list[int] = []
    real = Stepper.step
    monkeypatch.setattr(Stepper, "step", lambda self, batch, *rest: (sizes.append(len(batch.labels)), real(self, batch, *rest))[1])
    monkeypatch.setattr("vitral.study.fight.forecast.PATIENCE", 0.0)
    evaluated: list[int] = []
    monkeypatch.setattr("vitral.study.fight.forecast.evaluate_loader", lambda model, loader, **_: evaluated.append(len(loader.split)))
    monkeypatch.setattr("vitral.study.fight.forecast.time_action", lambda action, *_: (action(), Seconds(2.0, 1.0, 3.0))[1])
    with watched(lambda bar: told.append(bar.done)):
        timing = time_run(prepare(run("digits", batch_size=48, accumulate=3, device="cpu"), torch.device("cpu")), quiet=False)
    assert set(sizes) == {6} and set(evaluated) == {1} and told
    assert timing.timed_batch == 6 and timing.step == 2.0 * 8 and timing.spread == (1.0 * 8, 3.0 * 8)


def test_the_first_group_is_left_out() -> None:
    waits = iter([0.2, 0.0, 0.0, 0.0])
    calls: list[int] = []
    found = median_seconds(lambda: time.sleep(next(waits)), lambda: calls.append(1), least=3)
    assert found < 0.1 and len(calls) == 4


def test_seconds_are_the_budget_where_they_are_given() -> None:
    study = drive.small_scale()
    clock = dataclasses.replace(study, budget=dataclasses.replace(study.budget, kind="seconds", amount=100.0))
    assert forecast(clock, quiet=True).seconds > 12 * 100
