"""Small real studies on digits, run by the tests and, to be killed, by a process of their own."""

from __future__ import annotations

import dataclasses
import sys
from typing import Literal

from vitral.config import DataConfig, TrainConfig
from vitral.study.fight.compare import comparison, run_comparison
from vitral.study.fight.protocol import Budget, Study
from vitral.study.fight.recipe import Recipe
from vitral.study.fight.scale import scaling

CHECKPOINTS = 0.2
"""Seconds: often enough that a cell of a second or two leaves one behind."""
DATA = DataConfig(name="digits", augment="light")


def recipe(checkpoint_every: float = 30.0, tune: Literal["all", "attention", "head"] = "all") -> TrainConfig:
    return dataclasses.replace(Recipe(batch_size=64, device="cpu").train_config(tune), checkpoint_every=checkpoint_every)


def small_compare(checkpoint_every: float = 30.0) -> Study:
    return comparison(DATA, ["vit-small", "cnn"], Budget("samples", 768), seeds=2, lrs=(1e-3, 3e-3), train=recipe(checkpoint_every))


def small_scale() -> Study:
    return scaling(
        "data",
        DATA,
        Budget("samples", 256),
        models=["vit-small", "cnn"],
        sizes=(64, 256, 1.0),
        seeds=2,
        lrs=(3e-3,),
        train=recipe(),
    )


def small_compute() -> Study:
    return scaling("compute", DATA, Budget("samples", 512), models=["vit-small", "vit", "hybrid"], seeds=2, lrs=(3e-3,), train=recipe())


if __name__ == "__main__":
    run_comparison(small_compare(CHECKPOINTS), sys.argv[1])
