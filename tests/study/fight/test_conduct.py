"""From a study to its outcomes, with stand-ins for trainings."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from vitral.base.errors import DataError, FailedError, UsageError
from vitral.base.files import read_json, write_json
from vitral.config import TrainConfig
from vitral.presets import model
from vitral.study.fight.conclude import copy_remarks, settling_remarks
from vitral.study.fight.conduct import conduct
from vitral.study.fight.experiment import Budget, Cell, Experiment
from vitral.study.fight.forecast import left
from vitral.study.fight.pool import Pool

sys.path.insert(0, str(Path(__file__).parent))
import drive
from works import diverge, learn

VIT = drive.contender("vit", model("digits"), 1000, lrs=(1e-3, 3e-3, 1e-2))
STUDY = Experiment("compare", (VIT,), Budget("samples", 1000), images=100, seeds=(0, 1))


@pytest.mark.parametrize("content", ["{}", "[]"])
def test_damaged_files_are_named(tmp_path: Path, content: str) -> None:
    conduct(STUDY, tmp_path, Pool(quiet=True), learn)
    cell = next(tmp_path.glob("cells/final--*/cell.json"))
    cell.write_text(json.dumps({**read_json(cell), "result": json.loads(content)}))
    with pytest.raises(DataError, match=r"cell\.json"):
        conduct(STUDY, tmp_path, Pool(quiet=True), learn)
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(DataError, match=r"study\.json"):
        conduct(STUDY, tmp_path, Pool(quiet=True), learn)


def test_a_finished_study_has_nothing_left_to_run(tmp_path: Path) -> None:
    study = dataclasses.replace(STUDY, contenders=(dataclasses.replace(VIT, lrs=(3e-4, 3e-3)),))
    assert len(left(study, tmp_path)) == len(left(study, None)) == 4
    conduct(study, tmp_path, Pool(quiet=True), learn)
    assert left(study, tmp_path) == []
    (tmp_path / "cells" / "final--vit--n100--b1--lr0.003--s1" / "cell.json").unlink()
    assert [cell.seed for cell in left(study, tmp_path)] == [1]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "note").touch()
    with pytest.raises(UsageError, match="file"):
        conduct(STUDY, tmp_path / "note", Pool(quiet=True), learn)


def settle(plain: dict[str, Any], folder: str) -> dict[str, Any]:
    """As many samples as the cell's epochs show."""
    cell = Cell.from_dict(plain)
    samples = round(cell.run.train.epochs * cell.size)
    return {**learn(plain, folder), "samples": samples, "size": cell.size, "share": cell.share}


@pytest.mark.parametrize(
    ("samples", "lrs", "words"),
    [
        (6000, (1e-3,), "settled in cnn (60 optimizer steps in final runs), resnet18 (60 optimizer steps in final runs): their accuracy"),
        (10_000, (1e-3,), None),
        (10_000, (1e-3, 3e-3), "settled in cnn (25 optimizer steps in tuning), resnet18 (25 optimizer steps in tuning): their accuracy"),
    ],
)
def test_batch_statistics_that_could_not_settle_are_named(tmp_path: Path, samples: int, lrs: tuple, words: str | None) -> None:
    models = {name: model(name, image_size=8, channels=1, classes=10) for name in ("cnn", "resnet18")}
    train = TrainConfig(batch_size=100)
    contenders = [drive.contender(name, config, 1000, lrs=lrs, train=train) for name, config in {"vit": VIT.run.model, **models}.items()]
    from_weights = dataclasses.replace(contenders[1].run, weights="somewhere")
    contenders.append(dataclasses.replace(contenders[1], name="pretrained", run=from_weights))
    study = dataclasses.replace(STUDY, contenders=tuple(contenders), budget=Budget("samples", samples))
    found = settling_remarks(conduct(study, tmp_path, Pool(quiet=True), settle))
    assert (words is None and not found) or (words is not None and words in found[0] and "may be far too low" in found[0])


def test_a_study_without_a_finished_cell_has_nothing_to_say(tmp_path: Path) -> None:
    study = dataclasses.replace(STUDY, contenders=(dataclasses.replace(VIT, lrs=(1e-3,)),))
    with pytest.raises(FailedError, match="loss is nan"):
        conduct(study, tmp_path / "study", Pool(quiet=True), diverge)


def test_copies_in_the_test_split_are_told(tmp_path: Path) -> None:
    done = conduct(STUDY, tmp_path, Pool(quiet=True), learn)
    assert copy_remarks(done) == []
    write_json(tmp_path / "cells" / done.outcomes[0].cell / "env.json", {"data": {"copies": {"test": 3}}})
    assert copy_remarks(done) == ["3 test pictures are copies of training pictures (vitral data check digits shows them)."]
