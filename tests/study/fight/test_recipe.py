"""What all cells share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitral.base.errors import UsageError
from vitral.config import TrainConfig
from vitral.study.fight.compare import Terms
from vitral.study.fight.contenders import templates

SOURCE = Path(__file__).parents[3] / "src"


def test_every_model_gets_the_same_data_and_training():
    asked = {"validation": 0.2, "split_seed": 3, "augment": "light", "batch_size": 7, "weight_decay": 0.3, "threads": 2}
    run = templates("digits", tune="head", device="cpu", **asked)["plain"]
    assert (run.data.name, run.data.validation, run.data.split_seed, run.data.augment) == ("digits", 0.2, 3, "light")
    assert (run.train.batch_size, run.train.weight_decay, run.train.tune, run.train.threads) == (7, 0.3, "head", 2)
    assert (run.train.optimizer, run.train.schedule, run.train.warmup, run.train.compile) == ("adamw", "cosine", 0.05, "auto")


def test_a_recipe_is_asked_for_by_name_and_changed_by_keyword():
    both = templates("digits", "plain,strong", label_smoothing=0.2, augment="light")
    assert list(both) == ["plain", "strong"]
    assert (both["plain"].train.optimizer, both["strong"].train.optimizer, both["strong"].train.ema) == ("adamw", "muon", 0.99)
    assert all((run.train.label_smoothing, run.data.augment) == (0.2, "light") for run in both.values())
    assert [templates("digits", name)[name].data.augment for name in ("plain", "strong")] == ["standard", "strong"]
    with pytest.raises(UsageError, match="'strnog'"):
        templates("digits", "strnog")
    with pytest.raises(UsageError, match="twice"):
        templates("digits", "plain,plain")


def test_cells_share_the_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    two, many = TrainConfig(device="cpu", threads=2), TrainConfig(device="cpu", threads=64)
    assert Terms().pool(two).parallel == 3 and Terms().pool(many).parallel == 1 and Terms(parallel=5).pool(two).parallel == 5


def test_a_typo_is_not_swallowed():
    with pytest.raises(TypeError, match="bath_size"):
        templates("digits", bath_size=3)


@pytest.mark.parametrize("setting", ["lr", "seed", "subset"])
def test_what_the_study_decides_is_not_asked_for(setting: str):
    with pytest.raises(UsageError, match=f"{setting} is decided by the study"):
        templates("digits", **{setting: 1})


def test_flags_and_names_load_without_torch():
    code = "import sys, vitral.study, vitral.cli.compare, vitral.cli.scale; assert dir(vitral.study); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE), "PATH": ""})
    assert done.stdout.strip() == "False", done.stderr
