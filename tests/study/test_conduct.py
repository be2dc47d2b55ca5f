"""Tuning before the final runs, with stand-ins for trainings."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from vitral.base.errors import DataError, UsageError, VitralError
from vitral.base.files import read_json
from vitral.config import DataConfig, TrainConfig
from vitral.presets import model
from vitral.study.cells import Budget, Cell, Contender, Study
from vitral.study.conduct import TUNING, Pool, execute, settling_remarks, tuning_remarks
from vitral.study.forecast import left
from vitral.study.table import Outcome

VIT = Contender("vit", model("digits"), 1000, rates=(1e-3, 3e-3, 1e-2))
STUDY = Study("compare", DataConfig(), (VIT,), Budget("samples", 1000), pictures=100, seeds=(0, 1))


def learn(plain: dict[str, Any], folder: str) -> dict[str, Any]:
    """The higher the rate the better, until it is too high."""
    cell = Cell.from_dict(plain)
    if cell.lr > 5e-3:
        raise RuntimeError("the loss is nan")
    Path(folder).mkdir(parents=True, exist_ok=True)
    right = 100 * cell.lr
    return dataclasses.asdict(
        Outcome(cell.name, cell.contender, cell.seed, cell.lr, right, 1.0, right, 1, 1, 1.0, 1, 1.0, 1, "digits", role=cell.role)
    )


def diverge(plain: dict[str, Any], folder: str) -> dict[str, Any]:
    raise RuntimeError("the loss is nan")


def test_a_rate_that_fails_is_passed_over_and_named(tmp_path: Path) -> None:
    done = execute(STUDY, tmp_path / "study", Pool(quiet=True), learn)
    assert done.rates == {"vit": 3e-3} and len(done.outcomes) == 2 and not done.failed
    (remark,) = tuning_remarks(done)
    assert remark == "Rate 0.01 of vit failed in tuning and could not be chosen."
    assert read_json(tmp_path / "study" / TUNING)["vit"]["trials"][2] == {"lr": 1e-2, "failed": "RuntimeError: the loss is nan"}


def test_a_model_without_any_rate_stops_the_study(tmp_path: Path) -> None:
    with pytest.raises(VitralError, match="died twice: RuntimeError: the loss is nan"):
        execute(STUDY, tmp_path / "study", Pool(quiet=True), diverge)


@pytest.mark.parametrize("content", ["{}", "[]"])
def test_damaged_files_are_named(tmp_path: Path, content: str) -> None:
    execute(STUDY, tmp_path, Pool(quiet=True), learn)
    cell = next(tmp_path.glob("cells/final--*/cell.json"))
    cell.write_text(json.dumps({**read_json(cell), "result": json.loads(content)}))
    with pytest.raises(DataError, match=r"cell\.json is damaged"):
        execute(STUDY, tmp_path, Pool(quiet=True), learn)
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(DataError, match=r"damaged study\.json"):
        execute(STUDY, tmp_path, Pool(quiet=True), learn)


def test_a_finished_study_has_nothing_left_to_run(tmp_path: Path) -> None:
    study = dataclasses.replace(STUDY, contenders=(dataclasses.replace(VIT, rates=(3e-4, 3e-3)),))
    assert len(left(study, tmp_path)) == len(left(study, None)) == 4
    execute(study, tmp_path, Pool(quiet=True), learn)
    assert left(study, tmp_path) == []
    (tmp_path / "cells" / "final--vit--n100--b1--lr0.003--s1" / "cell.json").unlink()
    assert [cell.seed for cell in left(study, tmp_path)] == [1]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "note").touch()
    with pytest.raises(UsageError, match="is a file"):
        execute(STUDY, tmp_path / "note", Pool(quiet=True), learn)


def test_the_edge_of_the_grid_is_named(tmp_path: Path) -> None:
    study = dataclasses.replace(STUDY, contenders=(dataclasses.replace(VIT, rates=(3e-4, 1e-3, 3e-3)),))
    assert "The best rate of vit lies at the edge of the grid" in tuning_remarks(execute(study, tmp_path, Pool(quiet=True), learn))[0]


def settle(plain: dict[str, Any], folder: str) -> dict[str, Any]:
    """As many samples as the cell's epochs show."""
    cell = Cell.from_dict(plain)
    samples = round(cell.run.train.epochs * cell.size)
    return {**learn(plain, folder), "samples": samples, "size": cell.size, "share": cell.share}


@pytest.mark.parametrize(
    ("samples", "rates", "words"),
    [
        (6000, (1e-3,), "settled in cnn (60 optimizer steps in final runs), resnet18 (60 optimizer steps in final runs): their accuracy"),
        (10_000, (1e-3,), None),
        (10_000, (1e-3, 3e-3), "settled in cnn (25 optimizer steps in tuning), resnet18 (25 optimizer steps in tuning): their accuracy"),
    ],
)
def test_batch_statistics_that_could_not_settle_are_named(tmp_path: Path, samples: int, rates: tuple, words: str | None) -> None:
    models = {name: model(name, image_size=8, channels=1, classes=10) for name in ("cnn", "resnet18")}
    contenders = tuple(Contender(name, config, 1000, rates=rates) for name, config in {"vit": VIT.model, **models}.items())
    pretrained = dataclasses.replace(contenders[1], name="pretrained", weights="somewhere")
    study = dataclasses.replace(
        STUDY, contenders=(*contenders, pretrained), budget=Budget("samples", samples), train=TrainConfig(batch_size=100)
    )
    found = settling_remarks(execute(study, tmp_path, Pool(quiet=True), settle))
    assert (words is None and not found) or (words is not None and words in found[0] and "may be far too low" in found[0])
