"""`vitral runs`: every run is one row, a damaged one too; cleaning takes what a finished run no longer needs."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from vitral.base.errors import MissingError, UsageError
from vitral.base.layout import METRICS, NEIGHBOURS, PROBE, STATE
from vitral.cli import main
from vitral.cli.runs import run as list_runs
from vitral.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from vitral.presets.runs import pretraining
from vitral.run.answers import Answers
from vitral.run.differences import differences
from vitral.run.folder import RunFolder
from vitral.run.survey import remove_states, survey
from vitral.train.fit import fit

TINY = ModelConfig(patch_size=(4, 4), width=8, depth=1, heads=1, mlp_width=8).opened()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "good"
    settings = TrainConfig(epochs=1, lr=1e-2, threads=1, device="cpu")
    fit(RunConfig("good", TINY, DataConfig("digits"), settings), out, quiet=True)
    return out


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    """One that is finished, one that was stopped, one that is damaged, and what is no run."""
    folder = tmp_path / "runs"
    for name in ("good", "stopped", "broken"):
        shutil.copytree(trained, folder / name)
    (folder / "stopped" / "model.safetensors").unlink()
    lines = (folder / "stopped" / METRICS).read_text().splitlines(keepends=True)
    (folder / "stopped" / METRICS).write_text("".join(line for line in lines[:-1] if json.loads(line)["epoch"] < 0.9))
    (folder / "broken" / "config.json").write_text("{")
    (folder / "notes").mkdir()
    return folder


def test_each_run_is_a_row_and_the_best_comes_first(runs: Path, capsys: pytest.CaptureFixture[str]):
    rows = survey(runs)
    assert [row.name for row in rows] == ["good", "stopped", "broken"] or [row.name for row in rows] == ["good", "broken", "stopped"]
    good, stopped = rows[0], next(row for row in rows if row.name == "stopped")
    assert good.finished and good.accuracy == RunFolder.open(runs / "good").metrics[-1]["accuracy"] and good.model == "vit 8×1/4"
    assert not stopped.finished and stopped.accuracy is None and 0 < stopped.epochs < stopped.epochs_asked == 1
    assert [row.name for row in survey(runs, "name")] == ["broken", "good", "stopped"]
    assert main(["runs", str(runs)]) == 0
    shown = capsys.readouterr().out
    assert "mean average precision" not in shown
    assert "not finished" in shown and f"{100 * good.accuracy:.1f} %" in shown and "config.json" in shown and "notes" not in shown
    assert main(["runs", str(runs), "--json"]) == 0 and len(json.loads(capsys.readouterr().out)) == 3
    with pytest.raises(MissingError, match="folder"):
        survey(runs / "none")
    assert main(["runs", str(runs / "notes")]) == 0 and "no runs in" in capsys.readouterr().out


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pretrained") / "blind"
    config = pretraining("digits", "mae")
    assert config.pretrain is not None
    settings = dataclasses.replace(config.train, epochs=0.1, threads=1, device="cpu")
    learning = dataclasses.replace(config.pretrain, decoder_width=8, decoder_depth=1)
    fit(dataclasses.replace(config, model=TINY, train=settings, pretrain=learning), out, quiet=True)
    return out


def test_a_pretraining_shows_its_method_and_what_its_features_are_worth(
    runs: Path, pretrained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", str(runs)]) == 0 and "method" not in capsys.readouterr().out, "nothing to say where all learnt with labels"
    for name in ("bare", "probed", "tested"):
        shutil.copytree(pretrained, runs / name)
    for name, linear in (("probed", 0.25), ("tested", 0.75)):
        RunFolder.open(runs / name).write_probe({"linear": {"accuracy": linear}, "neighbours": {"accuracy": 0.5}})
    for split, top1 in (("test", 1.0), (NEIGHBOURS, 0.625)):
        RunFolder.open(runs / "tested").write_answers({"top1": top1}, Answers(np.zeros(8), np.zeros(8)), split)
    assert main(["runs", str(runs), "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows)[:3] == ["tested", "good", "probed"], "by test, then by the linear probe"
    told = {name: [rows[name][each] for each in ("method", "accuracy", "linear", "neighbours", "test_neighbours")] for name in rows}
    assert told["tested"] == ["mae", 1.0, 0.75, 0.5, 0.625] and told["probed"] == ["mae", None, 0.25, 0.5, None]
    assert told["bare"] == ["mae", None, None, None, None] and told["good"][0] is None and told["good"][2:] == [None] * 3
    assert main(["runs", str(runs)]) == 0
    header, _, first, *_ = capsys.readouterr().out.splitlines()
    assert all(name in header for name in ("method", "linear probe", "neighbours, test"))
    assert all(value in first for value in ("mae", "100.0 %", "75.0 %", "50.0 %", "62.5 %"))
    found = differences([runs / "probed", runs / "tested"]).results
    assert found["linear"] == [0.25, 0.75] and found["test_neighbours"] == [None, 0.625]
    (runs / "probed" / PROBE).write_text('{"linear": {"accuracy": "good"}}')
    (row,) = survey(runs / "probed")
    assert "has no linear accuracy" in row.problem and "\n" not in row.problem


def test_epochs_that_nobody_asked_for_are_not_listed(runs: Path, capsys: pytest.CaptureFixture[str]):
    path = runs / "good" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"train": config["train"] | {"epochs": 1e6, "max_seconds": 45.0}}))
    (row,) = [row for row in survey(runs) if row.name == "good"]
    assert row.epochs == 1 and row.epochs_asked is None
    assert main(["runs", str(runs)]) == 0 and "1e+06" not in capsys.readouterr().out


def test_cleaning_takes_the_state_of_finished_runs_alone(runs: Path, capsys: pytest.CaptureFixture[str]):
    size = sum(file.stat().st_size for file in (runs / "good" / STATE).rglob("*") if file.is_file())
    with pytest.raises(UsageError, match=r"\(good\).*--yes"):
        list_runs([str(runs), "--clean"])
    assert (runs / "good" / STATE).exists()
    assert list_runs([str(runs), "--clean", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"freed": size, "runs": [str(runs / "good")]}
    assert not (runs / "good" / STATE).exists() and (runs / "stopped" / STATE).exists() and (runs / "broken" / STATE).exists()
    assert RunFolder.open(runs / "good").finished and RunFolder.open(runs / "good").faults() == [] and remove_states(survey(runs)) == 0
    assert list_runs([str(runs), "--clean"]) == 0  # nothing to ask about


def test_two_runs_stand_side_by_side_and_their_curves_in_one_figure(runs: Path, capsys: pytest.CaptureFixture[str]):
    both = [str(runs / "good"), str(runs / "stopped")]
    assert list_runs([*both, "--out", str(runs / "curves.png")]) == 0
    assert "result accuracy" in capsys.readouterr().out
    assert all((runs / f"curves.{ending}").stat().st_size for ending in ("png", "svg", "npz", "json"))
