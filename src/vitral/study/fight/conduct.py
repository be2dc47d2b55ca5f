"""From a study to its outcomes: tune the learning rates on validation, run the final cells, leave everything in one folder.

OUT/study.json, OUT/cells/NAME/ (run folders), OUT/tuning.json; `compare` and `scale` add result.json, table.md and figures/.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.device import describe_machine
from vitral.base.errors import FailedError, UsageError
from vitral.base.files import make_folder, read_json, write_json
from vitral.base.layout import CELLS, STUDY
from vitral.base.manifest import vouching
from vitral.data.loader import even_batches
from vitral.run.folder import RunFolder
from vitral.study.fight.contenders import has_batch_norm
from vitral.study.fight.pool import Pool, Work, run_cells
from vitral.study.fight.protocol import Study, check_same, final_cells
from vitral.study.fight.result import check_source
from vitral.study.fight.statistics import Interval, accuracy_interval
from vitral.study.fight.table import Outcome, outcome_of
from vitral.study.fight.train_cell import train_cell
from vitral.study.fight.tune import Tuning, tune

SETTLED = 100
"""Optimizer steps after which a batch norm's running statistics (momentum 0.1) have forgotten their start and followed the weights.
Digits, cnn, 16 steps: 24 %; the same weights with settled statistics: 96 %."""


@dataclass(frozen=True)
class Conducted:
    """A study whose cells have run."""

    study: Study
    folder: Path
    outcomes: tuple[Outcome, ...]
    """Of the final cells."""
    tuning: Tuning = field(default_factory=lambda: Tuning({}))
    retried: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    _known: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False, compare=False)
    """Cell → labels, right answers; read once."""

    def of(self, contender: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.model == contender]

    def steps(self, outcome: Outcome) -> int:
        """Optimizer steps of a finished cell; a small set is divided into even batches."""
        contender = next(contender for contender in self.study.contenders if contender.name == outcome.model)
        return outcome.samples // even_batches(outcome.size or self.study.images, contender.batch_size(self.study.train))[1]

    def correct(self, **place: float) -> dict[str, np.ndarray]:
        """Contender → (seeds, images): which test images each seed got right, of the cells of that `size`, `share` or `pretrained`."""
        chosen = [outcome for outcome in self.outcomes if all(getattr(outcome, name) == value for name, value in place.items())]
        names = dict.fromkeys(outcome.model for outcome in chosen)
        return {name: self.right([outcome for outcome in chosen if outcome.model == name]) for name in names}

    def right(self, outcomes: Sequence[Outcome]) -> np.ndarray:
        """(cells, images): which test images these cells got right."""
        return np.stack([self._right(outcome.cell) for outcome in outcomes])

    def interval(self, outcomes: Sequence[Outcome]) -> Interval | None:
        """Of a model's accuracy, over seeds and test images; None with one seed."""
        return accuracy_interval(self.right(outcomes)) if len(outcomes) > 1 else None

    def _right(self, cell: str) -> np.ndarray:
        if cell not in self._known:
            answers = RunFolder(self.folder / CELLS / cell).answers()
            labels, _ = next(iter(self._known.values()), (answers.labels, None))
            if not np.array_equal(labels, answers.labels):
                raise UsageError(
                    f"cell {cell} was tested on other pictures than the rest", "models of different splits cannot stand in one table"
                )
            self._known[cell] = labels, answers.right
        return self._known[cell][1]


def conduct(
    study: Study,
    out: str | Path,
    pool: Pool | None = None,
    work: Work = train_cell,
    declared: Study | None = None,
    description: str = "Final runs",
) -> Conducted:
    """Run what is not yet done of a study. Killed at any moment, the same call goes on where it was. `declared`: what its folder says of
    it, where something that the cells need was only found on the way; `description`: the words beside its progress."""
    pool, folder = pool or Pool(), declare(declared or study, out)
    tuning = tune(study, folder, pool, work)
    cells = final_cells(study, tuning.lrs, tuning.starts)
    finals = run_cells(cells, folder / CELLS, work, pool, threads=study.train.threads, description=description)
    outcomes = tuple(outcome_of(result, folder / CELLS / name) for name, result in finals.results.items())
    if not outcomes:
        raise FailedError("every cell failed", next(iter(finals.failed.values()), ""))
    return Conducted(study, folder, outcomes, tuning, {**(tuning.retried or {}), **finals.retried}, finals.failed)


def declare(study: Study, out: str | Path) -> Path:
    """The study's folder, which says what is studied from now on."""
    folder = check_folder(study, out)
    if not (folder / STUDY).exists():
        with vouching(make_folder(folder), STUDY):
            write_json(folder / STUDY, study.to_dict())
    return folder


def check_folder(study: Study, out: str | Path) -> Path:
    """Refuse a folder that holds anything but this study; nothing is written."""
    folder = check_source(out)
    if (folder / STUDY).exists():
        check_same(study, read_json(folder / STUDY), str(folder))
    return folder


def copy_remarks(done: Conducted) -> list[str]:
    """What every cell's accuracy is worth less by: test pictures that were learnt."""
    described = RunFolder(done.folder / CELLS / done.outcomes[0].cell).environment.get("data", {})
    count = described.get("copies", {}).get("test", 0)
    if not count:
        return []
    return [f"{count:,} test pictures are copies of training pictures (vitral data check {done.study.data.name} shows them)."]


def settling_remarks(done: Conducted) -> list[str]:
    """Which models were judged by batch statistics that had too few steps to settle. Those that start from weights bring theirs along."""
    named = []
    for contender in done.study.contenders:
        tuned = [trial for trial in done.tuning.trials if trial.model == contender.name]
        runs = {"final runs": done.of(contender.name), "tuning": tuned}
        fewest = {where: min(map(done.steps, cells)) for where, cells in runs.items() if cells}
        short = [f"{steps} optimizer step{'s' * (steps != 1)} in {where}" for where, steps in fewest.items() if steps < SETTLED]
        if short and contender.weights is None and not contender.begun and has_batch_norm(contender.model):
            named.append(f"{contender.name} ({', '.join(short)})")
    if not named:
        return []
    return [
        f"Batch statistics may not have settled in {', '.join(named)}: {'its' if len(named) == 1 else 'their'} accuracy may be "
        "far too low; use a larger budget or a smaller batch."
    ]


def common_values(done: Conducted) -> dict[str, Any]:
    """What every result.json says, whatever was studied."""
    study, train = done.study, done.study.train
    shared = ("batch_size", "weight_decay", "layer_decay")
    recipes = {contender.name: contender.settings for contender in study.contenders}
    same = all(settings == next(iter(recipes.values())) for settings in recipes.values())
    return {
        "kind": study.kind,
        "data": study.data.name,
        "budget": str(study.budget),
        "seeds": list(study.seeds),
        "recipe": {name: getattr(train, name) for name in shared} | (next(iter(recipes.values())) if same else {"each": recipes}),
        "models": {contender.name: contender.note for contender in study.contenders},
        "tuning": done.tuning.entries,
        "tuning_share": study.tuning_share,
        "retried": done.retried,
        "failed": done.failed,
        "cells": [dataclasses.asdict(outcome) for outcome in done.outcomes],
        "machine": describe_machine(),
    }
