from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from vitral.base.errors import ConfigError, UsageError
from vitral.base.layout import STUDY as STUDY_FILE
from vitral.config import TrainConfig
from vitral.data.splits.open import open_data
from vitral.presets import model
from vitral.study.fight.experiment import Budget, Cell, Experiment, final_cells, fingerprint, tuning_cells
from vitral.study.fight.folder import check_folder
from vitral.study.fight.scale import scaling

sys.path.insert(0, str(Path(__file__).parent))
import drive

TRAIN = TrainConfig(batch_size=50)
VIT = drive.contender("s/2", model("s/2", image_size=8, classes=10, channels=1), 1000, lrs=(1e-3, 3e-3), train=TRAIN)
CNN = drive.contender("cnn", model("cnn"), 4000, lrs=(1e-3, 3e-3), train=TRAIN)
STUDY = Experiment("compare", (VIT, CNN), Budget("samples", 2000), images=1000)


def changed(study: Experiment, part: str, **changes: Any) -> Experiment:
    """The study with other settings of the data or the training of all its contenders."""
    runs = [dataclasses.replace(one.run, **{part: dataclasses.replace(getattr(one.run, part), **changes)}) for one in study.contenders]
    contenders = [dataclasses.replace(one, run=run) for one, run in zip(study.contenders, runs, strict=True)]
    return dataclasses.replace(study, contenders=tuple(contenders))


def test_cells_are_the_same_every_time() -> None:
    lrs = {"s/2": 1e-3, "cnn": 3e-3}
    assert final_cells(STUDY, lrs) == final_cells(STUDY, lrs)
    names = [cell.name for cell in tuning_cells(STUDY) + final_cells(STUDY, lrs)]
    assert len(names) == len(set(names)) == 4 + 6
    assert names[0] == "tune--s-2--n1000--b0.25--lr0.001--s1000"


def test_json_and_back() -> None:
    cell = tuning_cells(STUDY)[0]
    assert Cell.from_dict(json.loads(json.dumps(cell.to_dict()))) == cell
    with pytest.raises(ConfigError, match="colour"):
        Cell.from_dict({**cell.to_dict(), "colour": 1})


def test_budgets_are_equal() -> None:
    lrs = {"s/2": 1e-3, "cnn": 1e-3}
    assert {cell.run.train.epochs for cell in final_cells(STUDY, lrs)} == {2.0}
    assert {cell.run.train.epochs for cell in tuning_cells(STUDY)} == {0.5}
    by_flops = dataclasses.replace(STUDY, budget=Budget("flops", 12e6))
    spent = {cell.run.train.epochs * 1000 * cell.flops * 3 for cell in final_cells(by_flops, lrs)}
    assert spent == {12e6}
    clock = final_cells(dataclasses.replace(STUDY, budget=Budget("seconds", 20)), lrs)
    assert {cell.run.train.max_seconds for cell in clock} == {20.0}


def test_a_flops_budget_lasts_longer_where_only_the_head_learns() -> None:
    run = dataclasses.replace(VIT.run, train=dataclasses.replace(TRAIN, tune="head"), weights="x")
    study = dataclasses.replace(STUDY, contenders=(VIT, dataclasses.replace(VIT, name="head", run=run)), budget=Budget("flops", 12e6))
    whole, head = (
        next(cell for cell in final_cells(study, {"s/2": 1e-3, "head": 1e-3}) if cell.contender == name) for name in ("s/2", "head")
    )
    assert whole.training_flops == 3000 and head.training_flops == pytest.approx(1000, rel=0.01)
    assert head.run.train.epochs == pytest.approx(3 * whole.run.train.epochs, rel=0.01)


def test_a_budget_of_epochs_grows_with_the_data() -> None:
    study = dataclasses.replace(STUDY, kind="data", sizes=(100, 1000), budget=Budget.parse("epochs=2"))
    cells = final_cells(study, {"s/2": 1e-3, "cnn": 1e-3})
    assert {(cell.size, cell.run.train.epochs) for cell in cells} == {(100, 2.0), (1000, 2.0)} and study.budget.words == "2 epochs"
    with pytest.raises(ConfigError, match="50"):
        dataclasses.replace(study, sizes=(50, 1000), budget=Budget("epochs", 0.5), tuning_share=1.0)


def test_smaller_sets_get_the_same_samples() -> None:
    study = dataclasses.replace(STUDY, kind="data", sizes=(100, 1000))
    cells = final_cells(study, {"s/2": 1e-3, "cnn": 1e-3})
    assert {cell.run.train.epochs * cell.size for cell in cells} == {2000.0}
    assert {cell.run.data.subset for cell in cells} == {100.0, None}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"select_on": "test"}, "selection on test"),
        ({"seeds": (0,)}, "one seed cannot carry a claim"),
        ({"seeds": ()}, "a study without seeds trains nothing"),
        ({"contenders": ()}, "without models"),
        ({"contenders": (VIT, VIT)}, "twice"),
        ({"contenders": (VIT, dataclasses.replace(VIT, name="s-2"))}, "models s/2 and s-2 would share"),
        ({"contenders": (dataclasses.replace(VIT, name="vit@1"), dataclasses.replace(VIT, name="vit-1"))}, "vit@1 and vit-1 would share"),
        ({"contenders": (dataclasses.replace(VIT, lrs=(1e-3, 3e-3, 1e-3)),)}, "learning rates of s/2 are not different"),
        ({"contenders": (dataclasses.replace(VIT, lrs=(1e-3, 1.0000001e-3)),)}, "not different: 0.001, 0.001"),
        ({"seeds": (0, 1000)}, "tunes and is tested"),
        ({"kind": "data", "sizes": (10, 2000)}, "between 1 and 1,000"),
        ({"kind": "compute", "budget": Budget("seconds", 3)}, "not seconds"),
        ({"budget": Budget("samples", 199)}, "less than a batch of 50"),
        ({"budget": Budget("flops", 2e6)}, r"lets cnn see 41\.7 pictures"),
        ({"shares": (0.01, 1.0)}, "see 20 pictures in its shortest run"),
        ({"tuning_share": 0.0}, "tuning share"),
    ],
)
def test_refused_with_a_reason(changes: dict, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        dataclasses.replace(STUDY, **changes)


def test_one_seed_without_a_claim_is_a_description() -> None:
    assert dataclasses.replace(STUDY, seeds=(0,), claim="none").seeds == (0,)


def test_contenders_share_their_splits() -> None:
    other = dataclasses.replace(CNN.run, data=dataclasses.replace(CNN.run.data, split_seed=1))
    with pytest.raises(ConfigError, match="other splits"):
        dataclasses.replace(STUDY, contenders=(VIT, dataclasses.replace(CNN, run=other)))


def test_a_folder_holds_one_study(tmp_path: Path) -> None:
    def check(study: Experiment, stored: Experiment | dict[str, Any]) -> None:
        (tmp_path / STUDY_FILE).write_text(json.dumps(stored if isinstance(stored, dict) else stored.to_dict()))
        check_folder(study, tmp_path)

    check(STUDY, STUDY)
    check(STUDY, old_study())
    other = changed(STUDY, "data", split_seed=1)
    assert fingerprint(other.data) != fingerprint(STUDY.data)
    with pytest.raises(UsageError, match=r"data\.split_seed 1"):
        check(STUDY, other)
    heavier = changed(dataclasses.replace(STUDY, contenders=(CNN,)), "train", weight_decay=0.1)
    with pytest.raises(UsageError, match=r"s/2/cnn.*train\.weight_decay"):
        check(heavier, STUDY)
    grid = dataclasses.replace(STUDY, contenders=(VIT, dataclasses.replace(CNN, lrs=(1e-3,))))
    with pytest.raises(UsageError, match=r"contenders\[1\]\.lrs"):
        check(grid, STUDY)
    with pytest.raises(UsageError, match=r"contenders\[0\]\.run\.train\.ema none, now 0\.9\)"):
        one = dataclasses.replace(VIT, run=dataclasses.replace(VIT.run, train=dataclasses.replace(VIT.run.train, ema=0.9)))
        check(dataclasses.replace(STUDY, contenders=(one, CNN)), old_study())


def old_study() -> dict[str, Any]:
    """STUDY as version 0.2 wrote it; what a contender changes in the shared training is among its settings."""
    plain = STUDY.to_dict()
    for contender in plain["contenders"]:
        run = contender.pop("run")
        contender |= {"model": run["model"], "weights": None, "pretrain": None, "tune": "all", "family": run["model"]["family"]}
        contender |= {"settings": {"augment": run["data"]["augment"], "clip": 1.0}, "untrained": False, "begun": {}}
        del contender["pretrained_from"], contender["model"]["relative_mlp"]  # and of an earlier version: it has come since
    return plain | {"data": {"name": "digits", "augment": "strong"}, "train": {"batch_size": 50, "clip": 2.0}}


@pytest.mark.parametrize("text", ["samples", "samples=", "samples=-1", "miles=3", "samples=0", "seconds=nan"])
def test_bad_budgets(text: str) -> None:
    with pytest.raises(ConfigError, match="budget"):
        Budget.parse(text)


def test_good_budgets() -> None:
    assert [str(Budget.parse(text)) for text in ("samples=50000", "seconds=20", "flops=1e15")] == [
        "samples=50000",
        "seconds=20",
        "flops=1e+15",
    ]
    assert [Budget.parse(text).words for text in ("samples=50000", "seconds=2.5", "flops=5e14")] == [
        "50,000 samples",
        "2.5 s",
        "5·10¹⁴ FLOPs",
    ]


def test_a_subset_is_drawn_anew_for_each_seed_and_nested_within_it() -> None:
    study = scaling("digits", "data", ["cnn"], sizes=(64, 128, 1.0), budget="samples=256", seeds=2, lrs=(1e-3,))
    chosen = {(cell.seed, cell.size): set(open_data(cell.run.data).train.indices.tolist()) for cell in final_cells(study, {"cnn": 1e-3})}
    assert chosen[0, 64] < chosen[0, 128] and chosen[1, 64] < chosen[1, 128]
    assert chosen[0, 64] != chosen[1, 64] and chosen[0, study.images] == chosen[1, study.images]
