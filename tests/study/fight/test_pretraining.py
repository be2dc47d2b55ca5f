"""A whole study of pre-training: five digits from files first, all ten of them after; stopped half-way, moved, and resumed."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from vitral.base.errors import FailedError, UsageError
from vitral.base.files import read_json
from vitral.report.study import write_study_report
from vitral.study.fight.conduct import Conducted, train_cell
from vitral.study.fight.experiment import Source, final_cells, tuning_cells
from vitral.study.fight.folder import Result, declare
from vitral.study.fight.pool import Pool
from vitral.study.fight.pretraining import Pretraining, check_folders, numbers_of, run_pretraining, start_from, study_pretraining
from vitral.study.fight.statistics import holm
from vitral.study.fight.table import Outcome

sys.path.insert(0, str(Path(__file__).parent))
import drive

SIZES = (40, 120)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The first five digits as files."""
    folder, digits = tmp_path_factory.mktemp("other"), load_digits()
    for label in range(5):
        (folder / f"digit{label}").mkdir()
        for number, index in enumerate(np.flatnonzero(digits.target == label)[:40]):
            Image.fromarray((digits.images[index] * 15).astype(np.uint8)).save(folder / f"digit{label}" / f"{number}.png")
    return f"folder:{folder}"


def declared(photos: str, **changes: Any) -> Pretraining:
    budgets = {"budget": "samples=256", "transfer": "samples=128"}
    settings = {"from_data": photos, "sizes": SIZES, "shots": 5, "lrs": (3e-3,), **budgets, **drive.TERMS} | changes
    return study_pretraining("digits", ["vit-small", "cnn"], **settings)


@pytest.fixture(scope="module")
def whole(photos: str, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run_pretraining(declared(photos), tmp_path_factory.mktemp("study") / "study", Pool(quiet=True))


def test_result(whole: Result) -> None:
    assert whole.path is not None
    result = read_json(whole.path / "result.json")
    cells = [Outcome(**cell) for cell in result["cells"]]
    kinds = {(cell.model, cell.pretrained, cell.shots) for cell in cells}
    ways = {(model, size, shots) for model in ("vit-small", "cnn") for size in SIZES for shots in (0, 5)}
    assert kinds == ways | {("vit-small from scratch", 0, 0), ("cnn from scratch", 0, 0)} and len(cells) == 20
    assert {cell.samples for cell in cells if not cell.shots} == {128} and {cell.samples for cell in cells if cell.shots} == {0}
    assert set(result["fits"]) == {f"{way}: {name}" for way in ("fine-tuned", "linear probe of 5 a class") for name in ("vit-small", "cnn")}
    assert len(result["crossings"]) == 2 and all(found["reach"] == 3 for found in result["crossings"].values())
    assert len(result["gaps"]) == 2 and {pair["pretrained"] for pair in result["pairs"]} == {0, *SIZES}
    against = [pair for pair in result["pairs"] if pair["a"] + " from scratch" == pair["b"]]
    assert [(pair["a"], pair["pretrained"], pair["shots"]) for pair in against] == [("vit-small", 120, 0), ("cnn", 120, 0)]
    assert len(result["pairs"]) == 1 + 2 * 2 + 2 and "Fine-tuned after 120 pictures, against itself from scratch: " in result["conclusion"]
    tests = [*result["pairs"], *result["gaps"]]
    assert [test["adjusted"] for test in tests] == pytest.approx(holm([test["p"] for test in tests])), "fine-tuned, probed, gaps: one page"
    assert f"Holm over all {len(tests)} tests of this study" in result["conclusion"]
    assert "beyond 3 times 120 pictures nothing is said" in result["conclusion"] and "From scratch, fine-tuning's" in result["conclusion"]
    assert "Of the pre-training: Batch statistics may not have settled in cnn" in result["conclusion"], "4 steps before"
    assert "settled in cnn from scratch (2 optimizer steps" in result["conclusion"], "weights bring their statistics along"
    assert len(result["figures"]) == 4
    for picture in result["figures"]:
        assert (whole.path / picture).stat().st_size > 5000
    page = write_study_report(whole.path).read_text(encoding="utf-8")
    assert "pre-training pictures" in page and "linear probe of 5 a class" in page


def test_cells_start_from_what_was_learnt_before(whole: Result) -> None:
    assert whole.path is not None
    (found,) = whole.path.glob("cells/final--vit-small--p120--*lr0.003--s1")
    start = read_json(found / "asked.json")
    assert "pretraining/cells/final--vit-small--n120" in json.dumps(start) and "--s1" in json.dumps(start)
    assert [(row["model"], row["size"]) for row in whole.values["learnt"]] == [(m, n) for n in SIZES for m in ("vit-small", "cnn")]
    assert all("from scratch" in row["model"] or row["pretrained"] for row in whole.rows), "and its own rows are of the data in question"
    assert "before: folder:" in whole.table


def stop_half_way(plain: dict[str, Any], folder: str) -> dict[str, Any]:
    if plain["pretrained"] and len(list(Path(folder).parent.glob("*/cell.json"))) >= 3:
        raise KeyboardInterrupt
    return train_cell(plain, folder)


@pytest.mark.slow
def test_stopped_moved_and_resumed_ends_the_same_to_the_bit(whole: Result, photos: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_pretraining(declared(photos), tmp_path / "study", Pool(quiet=True), work=stop_half_way)
    assert not (tmp_path / "study" / "result.json").exists()
    shutil.move(tmp_path / "study", tmp_path / "moved")
    again = run_pretraining(declared(photos), tmp_path / "moved", Pool(quiet=True))
    assert [row["accuracies"] for row in again.rows] == [row["accuracies"] for row in whole.rows]
    assert again.values["fits"] == whole.values["fits"] and again.conclusion == whole.conclusion
    with pytest.raises(UsageError, match="another study"):
        run_pretraining(declared(photos, shots=3), tmp_path / "moved", Pool(quiet=True))


def test_what_failed_before_is_missing_after(photos: str, tmp_path: Path) -> None:
    both = declared(photos)
    learnt = [
        Outcome(f"c-{name}-{size}-{seed}", name, seed, 3e-3, 0.9, 1, 0.9, 1, 1, 1e9, 256, 1, 1, "d", size=size)
        for name in ("vit-small", "cnn")
        for size in SIZES
        for seed in (0, 1)
    ]
    second = start_from(both.second, Conducted(both.first, tmp_path, tuple(learnt[1:])))
    lrs = {contender.name: 3e-3 for contender in second.contenders}
    cells = [cell for cell in final_cells(second, lrs) if cell.contender == "vit-small" and not cell.shots]
    assert [(cell.pretrained, cell.seed) for cell in cells] == [(40, 1), (120, 0), (120, 1)]
    assert cells[0].pretrained_from == "../pretraining/cells/c-vit-small-40-1"
    with pytest.raises(FailedError, match="pre-training of cnn"):
        start_from(both.second, Conducted(both.first, tmp_path, tuple(learnt[:4])))


def test_rates_are_tuned_from_the_largest_pre_training(photos: str) -> None:
    both = declared(photos, lrs=None, seeds=1, tuning_share=1.0)
    grid: dict[str, set[float]] = {cell.contender: set() for cell in tuning_cells(both.second)}
    for cell in tuning_cells(both.second):
        grid[cell.contender].add(cell.lr)
        assert cell.pretrained == (0 if "scratch" in cell.contender else 120) and not cell.run.train.test
    assert min(grid["cnn"]) < min(grid["cnn from scratch"]), "weights want smaller rates"
    assert both.second.claim == "none" and both.second.contenders[0].pretrained_from == (Source(40, 0), Source(120, 0))


def test_the_folders_of_both_studies_are_looked_at(photos: str, tmp_path: Path) -> None:
    both = declared(photos)
    check_folders(both, tmp_path / "study")
    assert not (tmp_path / "study").exists(), "looking writes nothing"
    declare(both.second, tmp_path / "study")
    declare(dataclasses.replace(both.first, tuning_share=0.5), tmp_path / "study" / "pretraining")
    with pytest.raises(UsageError, match="tuning_share"):
        check_folders(both, tmp_path / "study")
    with pytest.raises(UsageError, match="another study"):
        check_folders(declared(photos, shots=3), tmp_path / "study")


def test_numbers() -> None:
    assert numbers_of((0.1, 1, 0.001), 1000, 10) == (10, 100, 1000)
    with pytest.raises(UsageError, match="2000"):
        numbers_of((2000,), 1000, 10)
