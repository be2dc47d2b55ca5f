"""A whole comparison on digits: what it leaves behind, and that being killed half-way changes nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vitral.base.errors import ConfigError, UsageError
from vitral.base.files import read_json
from vitral.base.layout import RESULT, STUDY, TABLE
from vitral.build import create
from vitral.study.fight.compare import comparison, conclude_across, own_folders
from vitral.study.fight.conduct import Conducted
from vitral.study.fight.experiment import Experiment
from vitral.study.fight.folder import Result, declare
from vitral.study.fight.forecast import Forecast
from vitral.study.fight.pool import Pool
from vitral.study.fight.table import Outcome
from vitral.weights.checkpoint import save

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import drive  # noqa: E402


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return drive.run(drive.small_compare(drive.CHECKPOINTS), tmp_path_factory.mktemp("whole") / "study", Pool(quiet=True))


def test_result(whole: Result) -> None:
    result = read_json(whole.path / "result.json")
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
    assert (whole.path / "table.md").read_text().startswith("**digits at 768 samples**")


def test_every_cell_is_a_run_folder_and_tuning_never_opened_test(whole: Result) -> None:
    cells = sorted(path for path in (whole.path / "cells").iterdir() if path.is_dir())
    assert len(cells) == 8
    for cell in cells:
        lines = [json.loads(line) for line in (cell / "metrics.jsonl").read_text().splitlines()]
        final = cell.name.startswith("final")
        assert [line["split"] for line in lines].count("test") == (1 if final else 0)
        assert (cell / "test.npz").exists() == final and (cell / "model.safetensors").exists()
        assert ("test" in read_json(cell / "env.json")["data"]["opened"]) == final


def test_learning_rates_come_from_validation(whole: Result) -> None:
    for name, entry in read_json(whole.path / "tuning.json").items():
        best = max(entry["trials"], key=lambda trial: (trial["validation"], -trial["loss"]))
        assert entry["chosen"] == best["lr"], name


def test_pictures(whole: Result) -> None:
    for picture in whole.values["figures"]:
        assert (whole.path / picture).stat().st_size > 5000
        assert (whole.path / picture).with_suffix(".json").exists()
    with np.load(whole.path / "figures/curves.npz") as numbers:
        assert numbers["cnn_validation_0"].shape[0] >= 5


@pytest.mark.slow
def test_killed_and_resumed_ends_the_same_to_the_bit(whole: Result, tmp_path: Path) -> None:
    out = tmp_path / "study"
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2] / "src"), "OMP_NUM_THREADS": "1"}
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
    again = drive.run(drive.small_compare(drive.CHECKPOINTS), out, Pool(quiet=True))
    for one, other in zip(whole.rows, again.rows, strict=True):
        assert one["accuracies"] == other["accuracies"] and one["lr"] == other["lr"]
    for cell in (whole.path / "cells").glob("final--*"):
        with np.load(cell / "test.npz") as a, np.load(out / "cells" / cell.name / "test.npz") as b:
            assert np.array_equal(a["predictions"], b["predictions"])
        assert read_json(cell / "test.json")["loss"] == read_json(out / "cells" / cell.name / "test.json")["loss"]
    assert again.values["pairs"] == whole.values["pairs"] and again.conclusion == whole.conclusion


def test_other_settings_do_not_mix_into_a_study(whole: Result) -> None:
    with pytest.raises(UsageError, match="different: budget"):
        drive.run(comparison("digits", ["cnn"], budget="samples=999", **drive.TERMS), whole.path)
    (whole.path.parent / "other").mkdir(exist_ok=True)
    (whole.path.parent / "other" / "note.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        drive.run(drive.small_compare(), whole.path.parent / "other")


def test_one_seed() -> None:
    with pytest.raises(ConfigError, match="seed"):
        comparison("digits", ["vit", "cnn"], budget="samples=1000", seeds=1, claim="significance")
    assert comparison("digits", ["vit", "cnn"], budget="samples=1000", seeds=1).claim == "none"


def test_no_validation_no_choice() -> None:
    with pytest.raises(UsageError, match="validation"):
        comparison("digits", ["vit"], budget="samples=1000", validation=0.0)


def test_other_test_pictures_are_refused(whole: Result, tmp_path: Path) -> None:
    outcomes = tuple(Outcome(**cell) for cell in whole.values["cells"])
    for index, outcome in enumerate(outcomes):
        folder = tmp_path / "cells" / outcome.cell
        folder.mkdir(parents=True)
        np.savez(folder / "test.npz", predictions=np.zeros(5, int), labels=np.full(5, index // 3))
    with pytest.raises(UsageError, match="other pictures"):
        Conducted(drive.small_compare(), tmp_path, outcomes).correct()


def test_transfer_beside_scratch(tmp_path: Path) -> None:
    save(create("tiny", width=24, depth=1), tmp_path / "source")
    study = comparison(
        "digits",
        ["mine", "vit-small"],
        weights={"mine": str(tmp_path / "source")},
        tune="head",
        budget="samples=128",
        lrs=(1e-3,),
        **drive.TERMS,
    )
    assert [contender.run.train.tune for contender in study.contenders] == ["head", "all"]
    result = drive.run(study, tmp_path / "study", Pool(quiet=True))
    assert [row["seeds"] for row in result.rows] == [2, 2] and "the head learns" in result.rows[0]["note"]
    env = read_json(next((tmp_path / "study").glob("cells/final--mine*s0/env.json")))
    assert env["trained_parameters"] < env["parameters"] and env["data"]["image_size"] == [32, 32]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_pool_and_ray_give_the_same(whole: Result, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    for pool in (Pool(parallel=2, quiet=True), Pool(ray="local", quiet=True)):
        again = drive.run(drive.small_compare(drive.CHECKPOINTS), tmp_path / str(pool.ray), pool)
        assert [row["accuracies"] for row in again.rows] == [row["accuracies"] for row in whole.rows]
        assert again.values["pairs"] == whole.values["pairs"]


def test_what_several_data_sets_would_take_is_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two studies of an hour each: an hour and a half is too little for them, and nothing has been begun when it is said."""
    module = sys.modules[comparison.__module__]
    made, started = drive.small_compare(), []
    monkeypatch.setattr(module, "comparison", lambda data, *_, **__: on_data(made, data))
    monkeypatch.setattr(module, "forecast", lambda *_: Forecast(2, 3600.0, {"vit": 3600.0}))
    monkeypatch.setattr(module, "conduct", lambda study, folder, _pool: started.append(folder.name))
    monkeypatch.setattr(module, "conclude", lambda done, _parallel: Result("", {}))
    monkeypatch.setattr(module, "conclude_across", lambda folder, done, studies: (len(done), folder, studies))
    ask = lambda hours: module.compare(["digits", "mnist"], ["vit"], max_hours=hours, out=tmp_path / "both", quiet=True)  # noqa: E731
    with pytest.raises(UsageError, match=r"2 h .*--max-hours"):
        ask(1.5)
    assert "forecast: 4 cells, about 2 h 00 min (most of it digits: vit" in capsys.readouterr().err
    assert not (tmp_path / "both").exists()
    assert ask(2.5) == (2, tmp_path / "both", {"digits": "digits", "mnist": "mnist"}) and started == ["digits", "mnist"]


# ---- several data sets -------------------------------------------------------------------------------------------------------------

PAIR = {"a": "vit", "b": "cnn", "p": 0.03, "bound": 0.0005, "adjusted": 0.03, "at_most": True, "different": True}


def on_data(study: Experiment, name: str) -> Experiment:
    runs = [dataclasses.replace(one.run, data=dataclasses.replace(one.run.data, name=name)) for one in study.contenders]
    contenders = (dataclasses.replace(one, run=run) for one, run in zip(study.contenders, runs, strict=True))
    return dataclasses.replace(study, contenders=tuple(contenders))


def values_of(data: str) -> dict[str, Any]:
    """A comparison in which the cnn failed on the second data set."""
    first = data == "digits"
    rows = [{"model": "vit", "mean": 0.5, "interval": [0.4, 0.6], "seeds": 2, "note": "ViT"}]
    rows += [{"model": "cnn", "mean": 0.25, "interval": None, "seeds": 1, "note": "CNN"}] if first else []
    shared = {"budget": "samples=768", "seeds": [0, 1], "recipe": {}, "machine": {}, "models": {"vit": "ViT", "cnn": "CNN"}}
    failed = {} if first else {"final--cnn": "it died"}
    return {"data": data, "rows": rows, "pairs": [dict(PAIR)], "conclusion": "Nothing.", "failed": failed, **shared}


def test_a_row_for_each_model_and_a_column_for_each_data_set(tmp_path: Path) -> None:
    done = [values_of("digits"), values_of("folder:my photos")]
    (tmp_path / "both").mkdir()
    result = conclude_across(tmp_path / "both", done, {"digits": "digits", "folder:my photos": "folder-my-photos"})
    assert [line.split("  ")[0] for line in result.table.splitlines()[:4]] == ["model", "─────", "vit", "cnn"]
    assert "50.0 % (40.0 % – 60.0 %)" in result.table and "25.0 % (one seed)" in result.table and "failed" in result.table
    assert [row["data"] for row in result.rows] == ["digits", "digits", "folder:my photos"]
    assert result.failed == {"folder:my photos final--cnn": "it died"}
    assert "Holm over all 2 pairs of all data sets): not told apart: vit and cnn on digits" in result.conclusion
    assert [(pair["adjusted"], pair["at_most"], pair["different"]) for pair in result.values["pairs"]] == [(0.06, False, False)] * 2, (
        "two tests on one page"
    )
    assert "Test accuracy at 768 samples: mean, 95 % interval over 2/1 seeds." in (tmp_path / "both" / TABLE).read_text()
    assert read_json(tmp_path / "both" / RESULT)["studies"] == {"digits": "digits", "folder:my photos": "folder-my-photos"}


def test_folders_of_other_studies_are_refused(tmp_path: Path) -> None:
    digits, mnist = (on_data(drive.small_compare(), name) for name in ("digits", "mnist"))
    with pytest.raises(UsageError, match="named twice"):
        own_folders([digits, digits], tmp_path / "twice")
    (tmp_path / STUDY).write_text('{"kind": "compare"}')
    with pytest.raises(UsageError, match="one data set"):
        own_folders([digits, mnist], tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").touch()
    with pytest.raises(UsageError, match="empty"):
        own_folders([digits, mnist], tmp_path / "full")


def test_every_folder_is_looked_at_before_the_first_is_trained(tmp_path: Path) -> None:
    digits, mnist = (on_data(drive.small_compare(), name) for name in ("digits", "mnist"))
    declare(dataclasses.replace(digits, seeds=(0, 1, 2)), tmp_path / "both" / "digits")
    (tmp_path / "both" / STUDY).write_text('{"kind": "several", "studies": {"digits": "digits"}}')
    with pytest.raises(UsageError, match="seeds 0/1/2"):
        own_folders([mnist, digits], tmp_path / "both")
