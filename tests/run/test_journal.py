from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vitral.base.errors import ConfigError, DataError, FileError
from vitral.presets.runs import run
from vitral.run.journal import Journal, read_metrics
from vitral.train.fit import fit


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


def test_damaged_lines_are_left_out_and_named(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    deep = "[" * 100_000
    path.write_bytes(b'{"step": 1}\n[1]\n\xff\n' + deep.encode() + b'\n{"step": 2}\n{"step": 3, "los')
    damaged: list[str] = []
    assert read_metrics(path, damaged) == read_metrics(path) == [{"step": 1}, {"step": 2}]
    assert damaged == ["[1]\n", "\ufffd\n", deep + "\n", '{"step": 3, "los']


def test_other_processes_write_nothing(tmp_path: Path):
    journal = Journal(None)
    journal.write(line(1))
    assert journal.position() == 0 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("flag", "module"), [("wandb", "wandb"), ("tensorboard", "torch.utils.tensorboard")])
def test_a_library_that_is_not_installed_is_refused_before_anything_is_written(
    flag: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delattr(torch.utils, "tensorboard", raising=False)  # another test may have imported it
    with pytest.raises(ConfigError, match=f"pip install .*{flag}"):
        fit(run("digits", **{flag: True}), out=tmp_path / "run", quiet=True)
    assert not list(tmp_path.iterdir())


class Wandb(types.ModuleType):
    """Stands in for the library: notes what it is asked to do."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.calls: list[tuple[str, Any]] = []
        self.id = "abc123"

    def init(self, **settings: Any) -> Wandb:
        self.calls.append(("init", settings))
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.calls.append(("log", (step, values)))

    def finish(self) -> None:
        self.calls.append(("finish", None))


def test_wandb_is_begun_told_and_finished_and_a_resumed_run_is_the_same_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", library)
    journal = Journal(tmp_path / "metrics.jsonl", wandb=True, name="seven")
    journal.write(line(3))
    position = journal.position()
    journal.close()
    journal.close()  # the engine closes once at the end and once on the way out
    settings = {"project": "vitral", "name": "seven", "dir": str(tmp_path), "resume": "allow"}
    assert library.calls == [
        ("init", {**settings, "id": None}),
        ("log", (3, {"train/loss": 0.25, "train/accuracy": 0.5})),
        ("finish", None),
    ]
    Journal(tmp_path / "metrics.jsonl", position, wandb=True, name="seven").close()
    assert library.calls[3:] == [("init", {**settings, "id": "abc123"}), ("finish", None)]


def test_a_whole_run_is_told_to_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", library)
    made = fit(run("digits", epochs=0.05, wandb=True, device="cpu"), out=tmp_path / "run", quiet=True)
    names = [name for name, _ in library.calls]
    assert names == ["init", *["log"] * len(made.metrics), "finish"]
    assert "test/accuracy" in library.calls[-2][1][1]


def test_values_of_another_kind_do_not_reach_those_who_count_with_them(tmp_path: Path):
    path, damaged = tmp_path / "metrics.jsonl", []
    bad = [{"accuracy": "1"}, {"loss": [1]}, {"split": 3}, {"step": None}, {"seconds": 1e300}, {"epoch": "x"}, {"other": {}}]
    path.write_text("".join(json.dumps(line(1) | each) + "\n" for each in [{}, *bad, {"accuracy": None}]))
    assert read_metrics(path, damaged) == [line(1), line(1) | {"accuracy": None}] and len(damaged) == len(bad)


def test_a_journal_is_bounded_and_no_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="regular"):
        read_metrics(tmp_path / "pipe")
    monkeypatch.setattr("vitral.run.journal.LARGEST", 10)
    (tmp_path / "long").write_text(json.dumps(line(1)) + "\n")
    with pytest.raises(DataError, match="10"):
        read_metrics(tmp_path / "long")


def test_a_full_disk_is_one_line(tmp_path: Path, full_disk: Callable):
    journal = Journal(tmp_path / "metrics.jsonl")
    journal.write(line(1))
    journal._file = full_disk(journal._file)
    with pytest.raises(FileError, match=r"metrics\.jsonl.*disk"):
        journal.write(line(2))
    journal.close()
    assert read_metrics(tmp_path / "metrics.jsonl") == [line(1)]
