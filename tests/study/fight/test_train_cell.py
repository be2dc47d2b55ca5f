"""What a cell leaves behind."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from vitral.base.errors import DataError
from vitral.base.layout import STATE
from vitral.run.folder import RunFolder
from vitral.study.fight.conduct import describe, train_cell
from vitral.study.fight.experiment import final_cells, tuning_cells
from vitral.study.fight.table import Outcome

sys.path.insert(0, str(Path(__file__).parent))
import drive

STUDY = drive.small_compare()
LINE = {"step": 3, "loss": 0.5, "accuracy": 0.9, "seconds": 1.0}


def test_a_final_cell_is_trained_and_tested(tmp_path: Path) -> None:
    cell = final_cells(STUDY, {"vit-small": 1e-3, "cnn": 1e-3})[0]
    outcome = Outcome(**train_cell(cell.to_dict(), str(tmp_path / cell.name)))
    assert outcome.role == "final" and outcome.samples == 768 and outcome.training_flops == 3 * outcome.flops * 768
    answers = RunFolder(tmp_path / cell.name).answers()
    assert (answers.predictions == answers.labels).mean() == pytest.approx(outcome.accuracy)
    assert not (tmp_path / cell.name / STATE).exists()  # nothing is left to go on with
    assert dataclasses.asdict(outcome) == {**train_cell(cell.to_dict(), str(tmp_path / cell.name)), "memory": outcome.memory}


def test_a_tuning_cell_is_judged_on_validation_and_never_on_test() -> None:
    cell = tuning_cells(STUDY)[0]
    judged = describe(cell, [{**LINE, "split": "train"}, {**LINE, "split": "validation", "accuracy": 0.7}], 10, 20)
    assert judged.accuracy == judged.validation == 0.7 and judged.role == "tune"
    with pytest.raises(DataError, match="test split"):
        describe(cell, [{**LINE, "split": "validation"}, {**LINE, "split": "test"}], 10, 20)
    with pytest.raises(DataError, match="validation"):
        describe(cell, [{**LINE, "split": "train"}], 10, 20)
