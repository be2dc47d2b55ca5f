"""A whole comparison on digits: what it leaves behind, and that being killed half-way changes nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from vitral.base.errors import ConfigError, UsageError
from vitral.base.files import read_json
from vitral.study.cells import Budget
from vitral.study.compare import Comparison, answers, compare, plan_compare
from vitral.study.conduct import Executed, Pool, choose_rates
from vitral.study.table import Outcome

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import drive  # noqa: E402


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(drive.small_compare(drive.CHECKPOINTS), tmp_path_factory.mktemp("whole") / "study", Pool(quiet=True))


def test_result(whole: Comparison) -> None:
    result = read_json(whole.folder / "result.json")
    assert {"data", "budget", "rows", "pairs", "conclusion", "tuning", "machine"} <= set(result)
    assert result["data"] == "digits" and result["budget"] == "samples=768"
    rows = {row["model"]: row for row in result["rows"]}
    assert set(rows) == {"vit-small", "cnn"}
    for row in rows.values():
        assert row["seeds"] == 2 and row["interval"][0] <= row["mean"] <= row["interval"][1] and 0 <= row["mean"] <= 1
        assert row["mean"] == pytest.approx(np.mean(row["accuracies"]))
        assert row["samples"] == 768 and row["seconds"] > 0 and row["memory"] > 1e6 and row["note"]
    assert rows["cnn"]["parameters"] > rows["vit-small"]["parameters"]
    assert rows["cnn"]["training_flops"] == 3 * rows["cnn"]["flops"] * 768
    (pair,) = result["pairs"]
    assert pair["pictures"] == 360 and 0 < pair["p"] <= pair["adjusted"] <= 1
    assert pair["difference"] == pytest.approx(rows["vit-small"]["mean"] - rows["cnn"]["mean"])
    assert "says nothing about" in result["conclusion"]
    assert (whole.folder / "table.md").read_text().startswith("**digits at 768 samples**")


def test_every_cell_is_a_run_folder_and_tuning_never_opened_test(whole: Comparison) -> None:
    cells = sorted(path for path in (whole.folder / "cells").iterdir() if path.is_dir())
    assert len(cells) == 8
    for cell in cells:
        lines = [json.loads(line) for line in (cell / "metrics.jsonl").read_text().splitlines()]
        final = cell.name.startswith("final")
        assert [line["split"] for line in lines].count("test") == (1 if final else 0)
        assert (cell / "test.npz").exists() == final and (cell / "model.safetensors").exists()
        assert (read_json(cell / "env.json")["data"]["test_opened"] is not None) == final


def test_rates_come_from_validation(whole: Comparison) -> None:
    for name, entry in read_json(whole.folder / "tuning.json").items():
        best = max(entry["trials"], key=lambda trial: (trial["validation"], -trial["loss"]))
        assert entry["chosen"] == best["lr"], name


def test_pictures(whole: Comparison) -> None:
    for picture in whole.result["figures"]:
        assert (whole.folder / picture).stat().st_size > 5000
        assert (whole.folder / picture).with_suffix(".json").exists()
    with np.load(whole.folder / "figures/curves.npz") as numbers:
        assert numbers["cnn_validation_0"].shape[0] >= 5


def test_killed_and_resumed_ends_the_same_to_the_bit(whole: Comparison, tmp_path: Path) -> None:
    out = tmp_path / "study"
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, str(HERE / "drive.py"), str(out)], env=environment, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until and process.poll() is None:
            begun = [path for path in out.glob("cells/final--*/state/*/manifest.json") if not (path.parents[2] / "cell.json").exists()]
            if begun and len(list(out.glob("cells/*/cell.json"))) >= 5:
                break
            time.sleep(0.01)
        assert process.poll() is None, "the study ended before it could be killed"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = len(list(out.glob("cells/*/cell.json")))
    assert 5 <= done < 8 and not (out / "result.json").exists()
    again = compare(drive.small_compare(drive.CHECKPOINTS), out, Pool(quiet=True))
    for one, other in zip(whole.table.rows, again.table.rows, strict=True):
        assert one.accuracies == other.accuracies and one.lr == other.lr
    for cell in (whole.folder / "cells").glob("final--*"):
        with np.load(cell / "test.npz") as a, np.load(out / "cells" / cell.name / "test.npz") as b:
            assert np.array_equal(a["predictions"], b["predictions"])
        assert read_json(cell / "test.json")["loss"] == read_json(out / "cells" / cell.name / "test.json")["loss"]
    assert again.pairs == whole.pairs and again.conclusion == whole.conclusion


def test_other_settings_do_not_mix_into_a_study(whole: Comparison) -> None:
    with pytest.raises(UsageError, match=r"another study \(different: budget"):
        compare(plan_compare(drive.DATA, ["cnn"], Budget("samples", 999), seeds=2, train=drive.recipe()), whole.folder)
    (whole.folder.parent / "other").mkdir(exist_ok=True)
    (whole.folder.parent / "other" / "note.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        compare(drive.small_compare(), whole.folder.parent / "other")


def test_one_seed() -> None:
    with pytest.raises(ConfigError, match="one seed cannot carry a claim"):
        plan_compare(drive.DATA, ["vit", "cnn"], Budget("samples", 1000), seeds=1, claim="significance")
    assert plan_compare(drive.DATA, ["vit", "cnn"], Budget("samples", 1000), seeds=1).claim == "none"


def test_no_validation_no_choice() -> None:
    import dataclasses

    with pytest.raises(UsageError, match="no validation pictures"):
        plan_compare(dataclasses.replace(drive.DATA, validation=0.0), ["vit"], Budget("samples", 1000))


def test_final_cells_cannot_choose_rates(whole: Comparison) -> None:
    finals = [Outcome(**cell) for cell in whole.result["cells"]]
    with pytest.raises(UsageError, match="may not choose"):
        choose_rates(drive.small_compare(), finals)


def test_other_test_pictures_are_refused(whole: Comparison, tmp_path: Path) -> None:
    outcomes = tuple(Outcome(**cell) for cell in whole.result["cells"])
    for index, outcome in enumerate(outcomes):
        folder = tmp_path / "cells" / outcome.cell
        folder.mkdir(parents=True)
        np.savez(folder / "test.npz", predictions=np.zeros(5, int), labels=np.full(5, index // 3))
    with pytest.raises(UsageError, match="other pictures"):
        answers(Executed(drive.small_compare(), tmp_path, {}, {}, outcomes, {}, {}))


def test_transfer_beside_scratch(tmp_path: Path) -> None:
    from vitral.build import create
    from vitral.weights.checkpoint import save

    save(create("tiny", width=24, depth=1), tmp_path / "source")
    study = plan_compare(
        drive.DATA,
        ["mine", "vit-small"],
        Budget("samples", 128),
        seeds=2,
        rates=(1e-3,),
        train=drive.recipe(tune="head"),
        weights={"mine": str(tmp_path / "source")},
    )
    assert [contender.tune for contender in study.contenders] == ["head", "all"]
    result = compare(study, tmp_path / "study", Pool(quiet=True))
    assert [row.seeds for row in result.table.rows] == [2, 2] and "the head learns" in result.table.rows[0].note
    env = read_json(next((tmp_path / "study").glob("cells/final--mine*s0/env.json")))
    assert env["trained_parameters"] < env["parameters"] and env["data"]["image_size"] == [32, 32]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_pool_and_ray_give_the_same(whole: Comparison, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    for pool in (Pool(parallel=2, quiet=True), Pool(ray="local", quiet=True)):
        again = compare(drive.small_compare(drive.CHECKPOINTS), tmp_path / str(pool.ray), pool)
        assert [row.accuracies for row in again.table.rows] == [row.accuracies for row in whole.table.rows]
        assert again.pairs == whole.pairs
