"""Learning rates are chosen on validation, with stand-ins for trainings."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from vitral.base.errors import FailedError, UsageError
from vitral.base.files import read_json
from vitral.base.layout import TUNING
from vitral.presets import model
from vitral.study.fight.conduct import choose_lrs, tune, widened
from vitral.study.fight.experiment import Budget, Experiment, final_cells
from vitral.study.fight.pool import Pool
from vitral.study.fight.table import Outcome

sys.path.insert(0, str(Path(__file__).parent))
import drive
from works import diverge, learn, prefer_zero

VIT = drive.contender("vit", model("digits"), 1000, lrs=(1e-3, 3e-3, 1e-2))
STUDY = Experiment("compare", (VIT,), Budget("samples", 1000), images=100, seeds=(0, 1))
QUIET = Pool(quiet=True)


def test_a_learning_rate_that_fails_is_passed_over_and_named(tmp_path: Path) -> None:
    tuning = tune(STUDY, tmp_path, QUIET, learn)
    assert tuning.lrs == {"vit": 3e-3} and len(tuning.trials) == 2
    assert tuning.remarks()[1:] == ["Learning rate 0.01 of vit failed in tuning and could not be chosen."]
    assert "chosen once, in 3 short runs with one seed" in tuning.remarks()[0]
    assert read_json(tmp_path / TUNING)["vit"]["trials"][2] == {"lr": 1e-2, "failed": "RuntimeError: the loss is nan"}


def test_a_model_without_any_learning_rate_stops_the_study(tmp_path: Path) -> None:
    with pytest.raises(FailedError, match="loss is nan"):
        tune(STUDY, tmp_path, QUIET, diverge)


def test_one_learning_rate_is_taken_as_it_is(tmp_path: Path) -> None:
    tuning = tune(dataclasses.replace(STUDY, contenders=(dataclasses.replace(VIT, lrs=(0.5,)),)), tmp_path, QUIET, diverge)
    assert tuning.lrs == {"vit": 0.5} and not tuning.trials and not tuning.remarks()


def test_the_edge_of_the_grid_is_named(tmp_path: Path) -> None:
    study = dataclasses.replace(STUDY, contenders=(dataclasses.replace(VIT, lrs=(3e-4, 1e-3, 3e-3)),))
    assert "The best learning rate of vit lies at the edge of the grid" in tune(study, tmp_path, QUIET, learn).remarks()[1]


def test_a_grid_of_ours_is_widened_until_the_best_lies_inside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = dataclasses.replace(STUDY, contenders=(dataclasses.replace(VIT, lrs=(1e-4, 3e-4, 1e-3), widens=True),))
    tuning = tune(study, tmp_path, Pool(), learn)  # the higher the better, up to 3.3e-3; above 5e-3 it fails
    assert "the best learning rate of vit lies at the edge of what was tried: one more beyond it" in capsys.readouterr().err
    tried = [trial["lr"] for trial in tuning.entries["vit"]["trials"]]
    assert sorted(tried) == [1e-4, 3e-4, 1e-3, 3.3e-3, 1.1e-2] and tuning.lrs == {"vit": 3.3e-3}
    assert not tuning.entries["vit"]["at_edge"]
    assert widened((1e-3, 3e-3), 1e-3) == (3.3e-4, 1e-3, 3e-3)


def test_starts_are_chosen_together_with_the_learning_rate(tmp_path: Path) -> None:
    study = dataclasses.replace(STUDY, contenders=(dataclasses.replace(VIT, lrs=(1e-3, 3e-3), starts=("torch", "zero")),))
    tuning = tune(study, tmp_path, QUIET, prefer_zero)
    assert len(tuning.trials) == 4 and tuning.starts == {"vit": "zero"} and tuning.entries["vit"]["start"] == "zero"
    (first, *_) = final_cells(study, tuning.lrs, tuning.starts)
    assert first.run.model.initialisation == "zero" and "zero" in first.name


def test_final_cells_cannot_choose() -> None:
    final = Outcome("final--vit", "vit", 0, 1e-3, 0.9, 0.1, 0.9, 1, 1, 1.0, 1, 1.0, 1, "digits", role="final")
    with pytest.raises(UsageError, match="choose"):
        choose_lrs(STUDY, [final])


def test_equal_accuracies_are_decided_by_the_loss() -> None:
    trials = [
        Outcome(f"{lr}", "vit", 0, lr, 0.9, loss, 0.9, 1, 1, 1.0, 1, 1.0, 1, "digits", role="tune")
        for lr, loss in ((1e-3, 0.4), (3e-3, 0.3))
    ]
    assert choose_lrs(STUDY, trials)["vit"]["chosen"] == 3e-3
