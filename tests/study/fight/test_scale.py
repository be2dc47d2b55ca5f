"""A whole data study, compute study and cost study on digits, the first stopped half-way and resumed."""

from __future__ import annotations

import dataclasses
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vitral.base.errors import UsageError
from vitral.base.files import read_json
from vitral.base.layout import STUDY
from vitral.data.splits.open import open_data
from vitral.presets import model
from vitral.study.fight.conclude import conclude, conclude_data
from vitral.study.fight.conduct import Conducted, Tuning, train_cell
from vitral.study.fight.experiment import Experiment, final_cells
from vitral.study.fight.folder import Result
from vitral.study.fight.growth import fit_cells, step_remarks
from vitral.study.fight.pool import Pool
from vitral.study.fight.scale import cost_table, scaling, study_cost, varied
from vitral.study.fight.statistics import holm
from vitral.study.fight.table import Outcome

sys.path.insert(0, str(Path(__file__).parent))
import drive


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return drive.run(drive.small_scale(), tmp_path_factory.mktemp("scale") / "study", Pool(quiet=True))


def test_result(whole: Result) -> None:
    result, whole_set = read_json(whole.path / "result.json"), drive.small_scale().images
    assert set(result["fits"]) == {"vit-small", "cnn"} and len(result["crossings"]) == 1
    assert {row["size"] for row in result["rows"]} == {64, 256, whole_set} and len(result["rows"]) == 6
    assert {row["samples"] for row in result["rows"]} == {256}
    for text in (found["text"] for found in result["crossings"].values()):
        assert text.startswith(("crossing at", "crossing not established", "no crossing in range"))
    assert "With 64 training pictures" in result["conclusion"] and "no extra regularisation" in result["conclusion"]
    assert {pair["size"] for pair in result["pairs"]} == {64, whole_set}
    tests = [*result["pairs"], *result["gaps"]]
    assert len(tests) == 3 and [test["adjusted"] for test in tests] == pytest.approx(holm([test["p"] for test in tests]))
    assert "Holm over all 3 tests of this study" in result["conclusion"]
    for picture in result["figures"]:
        assert (whole.path / picture).stat().st_size > 5000


def test_subsets_are_nested_and_balanced() -> None:
    study = drive.small_scale()
    cells = [cell for cell in final_cells(study, {c.name: 1e-3 for c in study.contenders}) if cell.contender == "cnn" and cell.seed == 0]
    splits = [open_data(cell.run.data).train for cell in cells]
    for small, large in pairwise(splits):
        assert set(small.indices) < set(large.indices)
    counts = splits[0].counts()
    assert len(splits[0]) == 64 and counts.max() - counts.min() <= 2


def stop_half_way(plain: dict[str, Any], folder: str) -> dict[str, Any]:
    if len(list(Path(folder).parent.glob("*/cell.json"))) >= 6:
        raise KeyboardInterrupt
    return train_cell(plain, folder)


def test_stopped_and_resumed_ends_the_same_to_the_bit(whole: Result, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        drive.run(drive.small_scale(), tmp_path / "study", Pool(quiet=True), work=stop_half_way)
    assert not (tmp_path / "study" / "result.json").exists()
    again = drive.run(drive.small_scale(), tmp_path / "study", Pool(quiet=True))
    assert [row["accuracies"] for row in again.values["rows"]] == [row["accuracies"] for row in whole.values["rows"]]
    assert again.values["fits"] == whole.values["fits"] and again.conclusion == whole.conclusion


def test_compute(tmp_path: Path) -> None:
    done = drive.run(drive.small_compute(), tmp_path / "study", Pool(quiet=True))
    rows = done.values["rows"]
    assert len(rows) == 6 and {row["samples"] for row in rows} == {128, 512}
    assert {(row["samples"], row["share"]) for row in rows} == {(128, 0.25), (512, 1.0)}
    assert set(done.values["fits"]) == {"vit", "hybrid"}
    flops = {(row["model"], row["samples"]): row["training_flops"] for row in rows}
    assert all(
        value == 3 * samples * next(row["flops"] for row in rows if row["model"] == name) for (name, samples), value in flops.items()
    )
    assert (done.path / done.values["figures"][0]).exists()


def test_no_exponent_or_crossing_is_claimed_where_the_fit_does_not_hold(tmp_path: Path) -> None:
    study = drive.small_compute()
    errors = {"vit-small": (0.5, 0.25), "vit": (0.8, 0.7), "hybrid": (0.4, 0.3)}  # the two ViTs do not lie on one line

    def outcome(name: str, index: int, seed: int) -> Outcome:
        flops = 1e9 * 4**index * (2 if name == "vit" else 1)
        right = 1 - errors[name][index] - 0.001 * seed
        return Outcome(f"{name}{index}{seed}", name, seed, 1e-3, right, 1.0, right, 1, 1, flops, 1, 1.0, 1, "d", share=study.shares[index])

    outcomes = tuple(outcome(name, index, seed) for name in errors for index in (0, 1) for seed in (0, 1))
    tuning = {name: {"trials": [{"lr": 1e-3}], "at_edge": name == "vit", "chosen": 1e-3} for name in errors}
    conducted = Conducted(study, tmp_path, outcomes, Tuning(tuning), failed={"final--vit": "it died"})
    rng = np.random.default_rng(0)
    for outcome in outcomes:
        conducted.answers[outcome.cell] = np.zeros(1000), rng.random(1000) < outcome.accuracy
    done = conclude(conducted)
    assert "The error of the family hybrid falls" in done.conclusion and "The error of the family vit" not in done.conclusion
    assert "no crossing is claimed" in done.conclusion and not done.values["crossings"]
    assert "best learning rate of vit lies at the edge" in done.conclusion and "1 cell failed and is missing" in done.conclusion
    assert "Learning rates were chosen with all training pictures" in done.conclusion
    # An order is claimed where a test tells one, at the same part of the budget, all six pairs counted.
    assert "vit-small beats vit by" in done.conclusion and "Holm over all 6 tests of this study" in done.conclusion
    assert {pair["share"] for pair in done.values["pairs"]} == set(study.shares) and len(done.values["pairs"]) == 6
    assert "- hybrid: hybrid: ResNet stem" in (tmp_path / "table.md").read_text()


def outcomes_of(study: Experiment) -> tuple[Outcome, ...]:
    """A cell for each model, size and seed, which saw as many pictures as the budget says."""
    return tuple(
        Outcome(f"{c.name}{size}{seed}", c.name, seed, 1e-3, 0.9, 1, 0.9, 1, 1, 1e9, int(study.budget.amount), 1, 1, "d", size=size)
        for c in study.contenders
        for size in study.sizes
        for seed in study.seeds
    )


def test_steps_of_sizes_in_smaller_batches_are_named() -> None:
    study = dataclasses.replace(drive.small_scale(), sizes=(16, 32, 64, 256))
    done = Conducted(study, Path(), outcomes_of(study))
    (remark,) = step_remarks(done)
    assert "batches of 64" in remark and remark.endswith(": 16 with 16 pictures, 8 with 32 pictures, against 4 with 256.")
    assert not step_remarks(dataclasses.replace(done, study=dataclasses.replace(study, sizes=(64, 256))))
    study = dataclasses.replace(study, sizes=(65, 256))  # two batches of 33, no longer one of 64
    (remark,) = step_remarks(Conducted(study, Path(), outcomes_of(study)))
    assert remark.endswith(": 7 with 65 pictures, against 4 with 256.")


@pytest.mark.parametrize("size", [-0.1, 0, float("nan"), 1e9, -5])
def test_sizes_that_cannot_be_are_refused(size: float) -> None:
    with pytest.raises(UsageError, match="share"):
        scaling("digits", "data", ["vit-small"], sizes=(size, 1.0), budget="samples=256")
    tiny = scaling("digits", "data", ["vit-small"], sizes=(1e-4, 1.0), budget="samples=256", lrs=(1e-3,), **drive.TERMS)
    assert tiny.sizes[0] == 10


def test_why_no_test_was_made() -> None:
    study = drive.small_scale()
    ends: dict[int, list] = {64: []}
    one = dataclasses.replace(study, contenders=study.contenders[:1])
    assert "no test was made (one model)" in conclude_data(one, {}, {}, ends)
    assert "no test was made (one seed)" in conclude_data(dataclasses.replace(study, seeds=(0,), claim="none"), {}, {}, ends)
    assert "fewer than two models have two finished seeds" in conclude_data(study, {}, {}, ends)


def test_fit_leaves_out_places_with_missing_seeds(whole: Result) -> None:
    cells = [Outcome(**cell) for cell in whole.values["cells"] if cell["model"] == "cnn"]
    done = Conducted(drive.small_scale(), whole.path or Path(), tuple(cells))
    fit = fit_cells(cells[:-1], "size", done.right)
    assert fit is not None and fit.sizes == (64.0, 256.0)
    assert fit_cells(cells[:2], "size", done.right) is None


# ---- cost --------------------------------------------------------------------------------------------------------------------------


def test_cost(tmp_path: Path) -> None:
    configs = varied(model("tiny"), [16, 32], [2, 4, 8])
    assert [config.tokens for config in configs] == [5, 17, 17, 65, 65, 257]
    result = study_cost(configs, tmp_path, batch_size=4, device="cpu", quiet=True).values
    rows = result["rows"]
    assert rows[-1]["quadratic"] / rows[0]["quadratic"] == pytest.approx((257 / 5) ** 2)
    assert rows[-1]["training_ms"] > rows[0]["training_ms"] > 0
    assert [layer["term"] for layer in result["layers"]["65"]] == ["n²·d", "n·d²", "k·n·d²", "r·n·d"]
    assert all((tmp_path / picture).exists() for picture in result["figures"]) and (tmp_path / "table.md").exists()
    assert "is off by up to" in result["conclusion"]
    exact = study_cost(configs[:3], tmp_path, batch_size=2, device="cpu", quiet=True).values
    assert "off by" not in exact["conclusion"]  # three numbers fitted to three points
    assert exact["time"] is None and "predicted" not in (tmp_path / "table.md").read_text() and "predicted ms" in cost_table(rows, 4)
    assert "FLOPs/picture" in cost_table(rows, 4) and "ms: of one picture, in batches of 4" in cost_table(rows, 4, markdown=True)
    with pytest.raises(UsageError, match="fewer"):
        varied(model("tiny"), [32], [5])


@pytest.mark.parametrize(("name", "words"), [(STUDY, "holds a study of another kind"), ("note", "is not empty")])
def test_what_others_left_is_not_written_over(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(UsageError, match=words):
        study_cost(varied(model("tiny"), [16, 32], [2, 4]), tmp_path, device="cpu", quiet=True)
