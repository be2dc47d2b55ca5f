"""Small real studies on digits, run by the tests and, to be killed, by a process of their own."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from vitral.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from vitral.study.fight.compare import comparison
from vitral.study.fight.conclude import conclude
from vitral.study.fight.conduct import conduct, train_cell
from vitral.study.fight.experiment import ALWAYS, TEMPLATE, Contender, Experiment
from vitral.study.fight.folder import Result
from vitral.study.fight.pool import Pool, Work
from vitral.study.fight.scale import scaling

CHECKPOINTS = 0.2
"""Seconds: often enough that a cell of a second or two leaves one behind."""
DATA = DataConfig(name="digits", augment="light")
TERMS: dict[str, Any] = {"seeds": 2, "batch_size": 64, "device": "cpu", "augment": "light"}


def small_compare(checkpoint_every: float = 30.0) -> Experiment:
    terms = TERMS | {"budget": "samples=768", "lrs": (1e-3, 3e-3), "checkpoint_every": checkpoint_every}
    return comparison("digits", ["vit-small", "cnn"], **terms)


def small_scale() -> Experiment:
    return scaling("digits", "data", ["vit-small", "cnn"], sizes=(64, 256, 1.0), budget="samples=256", lrs=(3e-3,), **TERMS)


def small_compute() -> Experiment:
    return scaling("digits", "compute", ["vit-small", "vit", "hybrid"], budget="samples=512", lrs=(3e-3,), **TERMS)


def contender(
    name: str, model: ModelConfig, flops: int, *, data: DataConfig | None = None, train: TrainConfig | None = None, **fields: Any
) -> Contender:
    train = dataclasses.replace(train or TrainConfig(), **ALWAYS)
    return Contender(name, RunConfig(TEMPLATE, model, data or DataConfig(), train), flops, **fields)


def run(study: Experiment, out: str | Path, pool: Pool | None = None, work: Work = train_cell) -> Result:
    return conclude(conduct(study, out, pool or Pool(quiet=True), work))


if __name__ == "__main__":
    run(small_compare(CHECKPOINTS), sys.argv[1], Pool())
