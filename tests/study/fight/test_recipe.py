"""What all cells share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitral.base.errors import UsageError
from vitral.config import TrainConfig
from vitral.study.fight.recipe import Recipe

SOURCE = Path(__file__).parents[3] / "src"


def test_every_model_gets_the_same_data_and_training():
    recipe = Recipe(validation=0.2, split_seed=3, augment="light", batch_size=7, weight_decay=0.3, device="cpu", threads=2)
    data, train = recipe.data_config("digits"), recipe.train_config("head")
    assert (data.name, data.validation, data.split_seed, data.augment) == ("digits", 0.2, 3, "light")
    assert (train.batch_size, train.weight_decay, train.tune, train.threads) == (7, 0.3, "head", 2)
    assert (train.optimizer, train.schedule, train.warmup, train.compile) == ("adamw", "cosine", 0.05, "auto")


def test_a_recipe_is_asked_for_by_name_and_changed_by_flag():
    both = Recipe(recipe="plain,strong", label_smoothing=0.2, augment="light").recipes()
    assert list(both) == ["plain", "strong"]
    assert (both["plain"]["optimizer"], both["strong"]["optimizer"], both["strong"]["ema"]) == ("adamw", "muon", 0.99)
    assert all((settings["label_smoothing"], settings["augment"]) == (0.2, "light") for settings in both.values())
    assert Recipe().data_config("digits").augment == "standard" and Recipe(recipe="strong").data_config("digits").augment == "strong"
    for settings in both.values():  # each is a training that there is
        TrainConfig(**{name: value for name, value in settings.items() if name != "augment"})
    with pytest.raises(UsageError, match="'strnog'"):
        Recipe(recipe="strnog").recipes()
    with pytest.raises(UsageError, match="twice"):
        Recipe(recipe="plain,plain").recipes()


def test_cells_share_the_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert Recipe(device="cpu", threads=2).cells_at_a_time() == 3 and Recipe(device="cpu", threads=64).cells_at_a_time() == 1
    assert Recipe(device="cpu", parallel=5).cells_at_a_time() == 5


def test_a_typo_is_not_swallowed():
    with pytest.raises(TypeError, match="bath_size"):
        Recipe(bath_size=3)  # type: ignore[call-arg]


def test_flags_and_names_load_without_torch():
    code = "import sys, vitral.study, vitral.study.fight.recipe, vitral.cli.scale; assert dir(vitral.study); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE), "PATH": ""})
    assert done.stdout.strip() == "False", done.stderr
