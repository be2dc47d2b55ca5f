from pathlib import Path

import pytest

from vitral.base.errors import ConfigError
from vitral.train.journal import Journal, open_wandb, read_metrics


def line(step: int) -> dict:
    return {"step": step, "epoch": 0.1, "split": "train", "loss": 1.0 / (step + 1), "accuracy": 0.5}


def test_lines_are_on_disk_at_once_and_cut_back_on_resume(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    journal = Journal(path)
    journal.write(line(1))
    position = journal.position()
    journal.write(line(2))
    assert [record["step"] for record in read_metrics(path)] == [1, 2]
    with path.open("a") as file:
        file.write('{"step": 3, "los')  # a kill in the middle of a line
    assert [record["step"] for record in read_metrics(path)] == [1, 2]
    again = Journal(path, position)
    again.write(line(9))
    again.close()
    journal.close()
    assert read_metrics(path) == [line(1), line(9)]
    assert read_metrics(tmp_path / "none") == []


def test_other_processes_write_nothing(tmp_path: Path):
    journal = Journal(None)
    journal.write(line(1))
    assert journal.position() == 0 and not list(tmp_path.iterdir())


def test_wandb_that_is_not_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        open_wandb(tmp_path, "run")
