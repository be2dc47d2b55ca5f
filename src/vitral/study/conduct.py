"""From a study to its outcomes: tune the rates on validation, run the final cells, leave everything in one folder.

OUT/study.json, OUT/cells/NAME/ (run folders), OUT/tuning.json; `compare` and `scale` add result.json, table.md and figures/.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.base.errors import DataError, UsageError
from vitral.base.files import read_json, write_json
from vitral.base.progress import say
from vitral.study.cells import Contender, Study, check_same, final_cells, tuning_cells
from vitral.study.contenders import has_batch_norm
from vitral.study.pool import RESULT as CELL
from vitral.study.pool import Work, run_cells
from vitral.study.table import Outcome
from vitral.study.train_cell import run_cell

PLAN, TUNING, RESULT = "study.json", "tuning.json", "result.json"
SETTLED = 100
"""Optimizer steps after which a batch norm's running statistics (momentum 0.1) have forgotten their start and followed the weights.
Digits, cnn, 16 steps: 24 %; the same weights with settled statistics: 96 %."""


@dataclass(frozen=True)
class Pool:
    """Where cells run: so many at a time, here or on a Ray cluster."""

    parallel: int = 1
    ray: str | None = None
    quiet: bool = False


@dataclass(frozen=True)
class Executed:
    study: Study
    folder: Path
    rates: dict[str, float]
    """Contender → chosen rate."""
    tuning: dict[str, dict[str, Any]]
    """Contender → validation accuracy and loss of each rate (or why it failed), and whether the best one lies at the edge of the grid."""
    outcomes: tuple[Outcome, ...]
    """Of the final cells."""
    retried: dict[str, str]
    failed: dict[str, str]
    trials: tuple[Outcome, ...] = ()
    """Of the tuning cells."""

    def of(self, contender: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.model == contender]

    def steps(self, outcome: Outcome) -> int:
        """Optimizer steps of a finished cell; a set smaller than a batch is one batch."""
        return outcome.samples // max(1, min(self.study.train.batch_size, outcome.size or self.study.pictures))


def execute(study: Study, out: str | Path, pool: Pool | None = None, work: Work = run_cell) -> Executed:
    """Run what is not yet done of a study. Killed at any moment, the same call goes on where it was."""
    pool, folder = pool or Pool(), Path(out)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, a study needs a folder", "choose another --out")
    if (folder / PLAN).exists():
        check_same(study, read_json(folder / PLAN), str(folder))
    elif folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty and holds no study", "choose another --out")
    else:
        write_json(folder / PLAN, study.to_dict())
    cells = folder / "cells"
    options: dict[str, Any] = {"parallel": pool.parallel, "ray": pool.ray, "quiet": pool.quiet, "threads": study.train.threads}
    trials = run_cells(tuning_cells(study), cells, work, description="Tuning", **options)
    tried = [_outcome(result, cells / name) for name, result in trials.results.items()]
    if any(len(contender.rates) > 1 and not _own(tried, contender) for contender in study.contenders):
        trials.raise_failures()  # a rate that is too high may fail, but one must be left
    tuning = choose_rates(study, tried, trials.failed)
    write_json(folder / TUNING, tuning)
    rates = {name: entry["chosen"] for name, entry in tuning.items()}
    if trials.results and not pool.quiet:
        say("rates chosen on validation: " + ", ".join(f"{name} {rate:g}" for name, rate in rates.items()))
    finals = run_cells(final_cells(study, rates), cells, work, description="Final runs", **options)
    outcomes = tuple(_outcome(result, cells / name) for name, result in finals.results.items())
    return Executed(study, folder, rates, tuning, outcomes, {**trials.retried, **finals.retried}, finals.failed, tuple(tried))


def _outcome(result: dict[str, Any], folder: Path) -> Outcome:
    try:
        return Outcome(**result)
    except TypeError as error:
        raise DataError(f"{folder / CELL} is damaged ({error})", f"remove {folder} and run the same command again") from error


def choose_rates(study: Study, trials: list[Outcome], failed: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """For each contender the rate with the best validation accuracy; equal ones are decided by the lower validation loss.

    A rate whose cell is in `failed` (it diverged, say) cannot be chosen; it stays in the list with its reason.
    """
    lost = [cell for cell in tuning_cells(study) if cell.name in (failed or {})]
    out: dict[str, dict[str, Any]] = {}
    for contender in study.contenders:
        if len(contender.rates) == 1:
            out[contender.name] = {"chosen": contender.rates[0], "trials": [], "at_edge": False}
            continue
        own = _own(trials, contender)
        if wrong := next((trial.cell for trial in own if trial.role != "tune"), None):
            raise UsageError(f"{wrong} is a final cell: its test accuracy may not choose anything", "select on validation")
        best = max(own, key=lambda trial: (trial.validation, -trial.loss, -trial.lr))
        out[contender.name] = {
            "chosen": best.lr,
            "trials": [{"lr": trial.lr, "validation": trial.validation, "loss": trial.loss} for trial in own]
            + [{"lr": cell.lr, "failed": (failed or {})[cell.name]} for cell in lost if cell.contender == contender.name],
            "at_edge": len(contender.rates) > 2 and best.lr in (min(contender.rates), max(contender.rates)),
        }
    return out


def _own(trials: list[Outcome], contender: Contender) -> list[Outcome]:
    return [trial for trial in trials if trial.model == contender.name]


def tuning_remarks(done: Executed) -> list[str]:
    """What a reader must know of how the rates were chosen."""
    out = []
    if edge := [name for name, entry in done.tuning.items() if entry["at_edge"]]:
        out.append(
            f"The best rate of {', '.join(edge)} lies at the edge of the grid, a wider one could help {'it' if len(edge) == 1 else 'them'}."
        )
    lost = [f"{trial['lr']:g} of {name}" for name, entry in done.tuning.items() for trial in entry["trials"] if "failed" in trial]
    if lost:
        out.append(f"{'Rates' if len(lost) > 1 else 'Rate'} {', '.join(lost)} failed in tuning and could not be chosen.")
    return out


def settling_remarks(done: Executed) -> list[str]:
    """Which models were judged by batch statistics that had too few steps to settle. Those that start from weights bring theirs along."""
    named = []
    for contender in done.study.contenders:
        runs = {"final runs": done.of(contender.name), "tuning": _own(list(done.trials), contender)}
        fewest = {where: min(map(done.steps, cells)) for where, cells in runs.items() if cells}
        short = [f"{steps} optimizer step{'s' * (steps != 1)} in {where}" for where, steps in fewest.items() if steps < SETTLED]
        if short and contender.weights is None and has_batch_norm(contender.model):
            named.append(f"{contender.name} ({', '.join(short)})")
    if not named:
        return []
    return [
        f"Batch statistics may not have settled in {', '.join(named)}: {'its' if len(named) == 1 else 'their'} accuracy may be "
        "far too low; use a larger budget or a smaller batch."
    ]


def common_result(done: Executed) -> dict[str, Any]:
    """What every result.json says, whatever was studied."""
    from vitral.base.device import describe_machine

    study = done.study
    return {
        "kind": study.kind,
        "data": study.data.name,
        "budget": str(study.budget),
        "seeds": list(study.seeds),
        "recipe": {
            "batch_size": study.train.batch_size,
            "optimizer": study.train.optimizer,
            "augment": study.data.augment,
            "schedule": study.train.schedule,
            "warmup": study.train.warmup,
            "weight_decay": study.train.weight_decay,
            "clip": study.train.clip,
            "layer_decay": study.train.layer_decay,
        },
        "models": {contender.name: contender.note for contender in study.contenders},
        "tuning": done.tuning,
        "tuning_share": study.tuning_share,
        "retried": done.retried,
        "failed": done.failed,
        "cells": [dataclasses.asdict(outcome) for outcome in done.outcomes],
        "machine": describe_machine(),
    }
