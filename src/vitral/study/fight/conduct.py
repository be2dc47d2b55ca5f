"""From an experiment to its outcomes: tune the learning rates on validation, run the final cells, leave everything in one folder.

OUT/study.json, OUT/tuning.json, OUT/cells/NAME/ (run folders). Tuning cells never open the test split.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitral.base.device import pick_device, using_threads
from vitral.base.errors import DataError, FailedError, UsageError
from vitral.base.files import make_folder, write_json
from vitral.base.layout import CELLS, STATE, TUNING
from vitral.base.manifest import vouching
from vitral.base.progress import say
from vitral.cost.memory import PeakMemory
from vitral.data.loader import even_batches
from vitral.model.classifier import Classifier
from vitral.run.folder import RunFolder
from vitral.study.fight.experiment import Cell, Experiment, final_cells, fingerprint, tuning_cells
from vitral.study.fight.folder import declare
from vitral.study.fight.pool import Pool, Work, run_cells
from vitral.study.fight.statistics import Interval, accuracy_interval
from vitral.study.fight.table import Outcome, outcome_of
from vitral.study.probe import probe_few, probe_finished
from vitral.train.fit import fit

_WIDENINGS = 4
"""So often a grid is widened by one learning rate; a best one that still lies at the edge is named."""


# ---- one cell -----------------------------------------------------------------------------------------------------------------------


def train_cell(plain: dict[str, Any], folder: str) -> dict[str, Any]:
    """Train the cell in its folder, or resume it; its Outcome as plain values."""
    cell, path = Cell.from_dict(plain), Path(folder)
    peak = PeakMemory(pick_device(cell.run.train.device))
    if cell.shots:
        model, metrics = _few_shots(cell, path)
    else:
        start = {"weights": str(_source(cell, path))} if cell.pretrained_from else {}
        run = fit(dataclasses.replace(cell.run, **start), out=path, resume=RunFolder(path).exists, quiet=True)
        model, metrics = _probe_cell(cell, run.metrics, path) if cell.probed else (run.model, run.metrics)
        del run
    outcome = describe(cell, metrics, sum(parameter.numel() for parameter in model.parameters()), peak.bytes())
    shutil.rmtree(path / STATE, ignore_errors=True)  # a finished run needs no checkpoint to go on from
    del model
    _tidy()
    return dataclasses.asdict(outcome)


def _source(cell: Cell, path: Path) -> Path:
    """The finished cell whose weights it starts from. Its path is relative to the cells, so that a study can be moved."""
    return Path(os.path.normpath(path.parent / cell.pretrained_from))


def _few_shots(cell: Cell, path: Path) -> tuple[Classifier, list[dict[str, Any]]]:
    """The weights it starts from with a linear probe of a few images for their head, and the journal as if that had been a run."""
    start, classes = time.perf_counter(), cell.run.model.classes
    few = dataclasses.replace(cell.run.data, subset=float(cell.shots * classes), subset_seed=cell.seed)
    with using_threads(cell.run.train.threads):
        model, judged = probe_few(RunFolder(make_folder(path)), _source(cell, path), few, device=cell.run.train.device)
    spent = {"step": 0, "seconds": time.perf_counter() - start}
    return model, [{"split": split, "accuracy": scored.top1, "loss": scored.loss, **spent} for split, scored in judged.items()]


def _probe_cell(cell: Cell, metrics: list[dict[str, Any]], path: Path) -> tuple[Classifier, list[dict[str, Any]]]:
    """The model with a linear probe for its head, and the journal as if that had been judged; a final cell's folder gets its answers."""
    folder = RunFolder.open(path)
    with using_threads(cell.run.train.threads):
        model, judged = probe_finished(folder, test=cell.role == "final", device=cell.run.train.device)
    spent = {name: metrics[-1][name] for name in ("step", "seconds")}
    lines = [{"split": split, "accuracy": scored.top1, "loss": scored.loss, **spent} for split, scored in judged.items()]
    return model, [line for line in metrics if line["split"] == "train"] + lines


def describe(cell: Cell, metrics: list[dict[str, Any]], parameters: int, memory: int) -> Outcome:
    """The outcome in a run's journal."""
    by_split = {line["split"]: line for line in metrics}
    last, judged = metrics[-1], by_split.get("validation")
    if cell.role == "tune" and (judged is None or "test" in by_split):
        raise DataError(
            f"tuning cell {cell.name} {'opened the test split' if judged else 'has no validation pictures'}", "tune on validation"
        )
    shown = by_split["test"] if cell.role == "final" else by_split["validation"]
    samples = int(last["step"]) * even_batches(cell.size, cell.run.train.batch_size)[1]
    return Outcome(
        cell=cell.name,
        model=cell.contender,
        seed=cell.seed,
        lr=cell.lr,
        accuracy=float(shown["accuracy"]),
        loss=float(shown["loss"]),
        validation=float(judged["accuracy"]) if judged else float("nan"),
        parameters=parameters,
        flops=cell.flops,
        training_flops=cell.training_flops * samples,
        samples=samples,
        seconds=float(last["seconds"]),
        memory=memory,
        split=fingerprint(cell.run.data),
        role=cell.role,
        size=cell.size,
        share=cell.share,
        pretrained=cell.pretrained,
        shots=cell.shots,
    )


def _tidy() -> None:
    """Leave a GPU process as fresh as the next cell expects it: no old weights on the device, no graphs of old models."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
        torch.compiler.reset()


# ---- learning rates -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuning:
    """How the learning rates were chosen."""

    entries: dict[str, dict[str, Any]]
    """Contender → the chosen learning rate (and start, of several), each trial's validation accuracy and loss (or why it failed), and
    whether the best one lies at the edge of the grid; as tuning.json has it."""
    trials: tuple[Outcome, ...] = ()
    retried: Mapping[str, str] | None = None

    @property
    def lrs(self) -> dict[str, float]:
        return {name: entry["chosen"] for name, entry in self.entries.items()}

    @property
    def starts(self) -> dict[str, str]:
        return {name: entry["start"] for name, entry in self.entries.items() if "start" in entry}

    def remarks(self) -> list[str]:
        """What a reader must know of it."""
        out = []
        if tried := sum(len(entry["trials"]) for entry in self.entries.values()):
            out.append(
                f"Learning rates were chosen once, in {tried} short runs with one seed, and kept for every seed: intervals and tests "
                "do not carry how another choice would have come out."
            )
        if edge := [name for name, entry in self.entries.items() if entry["at_edge"]]:
            help_them = f"a wider one could help {'it' if len(edge) == 1 else 'them'}"
            out.append(f"The best learning rate of {', '.join(edge)} lies at the edge of the grid, {help_them}.")
        lost = [f"{trial['lr']:g} of {name}" for name, entry in self.entries.items() for trial in entry["trials"] if "failed" in trial]
        if lost:
            out.append(f"Learning rate{'s' * (len(lost) > 1)} {', '.join(lost)} failed in tuning and could not be chosen.")
        return out


def tune(study: Experiment, folder: Path, pool: Pool, work: Work) -> Tuning:
    """Run the tuning cells that are not yet done, and choose; while a best one lies at the edge of its grid, go on beyond it."""
    grids = {contender.name: contender.lrs for contender in study.contenders}
    widening = [contender.name for contender in study.contenders if contender.widens]
    for round_ in range(_WIDENINGS + 1):
        cells = tuning_cells(study, grids)
        done = run_cells(cells, folder / CELLS, work, pool, threads=study.threads, description="Tuning")
        trials = [outcome_of(result, folder / CELLS / name) for name, result in done.results.items()]
        tried = {trial.model for trial in trials}
        if any(contender.is_tuned and contender.name not in tried for contender in study.contenders):
            done.raise_failures()  # a learning rate that is too high may fail, but one must be left
        entries = choose_lrs(study, trials, done.failed, cells)
        wider = {name: widened(grids[name], entries[name]["chosen"]) for name in widening if entries[name]["at_edge"]}
        if not wider or round_ == _WIDENINGS:
            break
        if not pool.quiet:
            say(f"the best learning rate of {', '.join(wider)} lies at the edge of what was tried: one more beyond it")
        grids |= wider
    tuning = Tuning(entries, tuple(trials), done.retried)
    with vouching(folder, TUNING):
        write_json(folder / TUNING, tuning.entries)
    if trials and not pool.quiet:
        say("learning rates chosen on validation: " + ", ".join(f"{name} {lr:g}" for name, lr in tuning.lrs.items()))
    return tuning


def widened(grid: Sequence[float], best: float) -> tuple[float, ...]:
    """The grid and one more learning rate beyond the edge that was best, as far from it as its neighbour is."""
    ordered = sorted(grid)
    neighbour = ordered[1] if best == ordered[0] else ordered[-2]
    return tuple(sorted({*ordered, float(f"{best * best / neighbour:.2g}")}))


def choose_lrs(
    study: Experiment, trials: Sequence[Outcome], failed: Mapping[str, str] | None = None, cells: Sequence[Cell] | None = None
) -> dict[str, dict[str, Any]]:
    """For each contender the learning rate (and start) with the best validation accuracy; equal ones are decided by the lower loss.

    One whose cell is in `failed` (it diverged, say) cannot be chosen; it stays in the list with its reason.
    """
    failed = failed or {}
    by_name = {cell.name: cell for cell in cells or tuning_cells(study)}
    out: dict[str, dict[str, Any]] = {}
    for contender in study.contenders:
        if not contender.is_tuned:
            out[contender.name] = {"chosen": contender.lrs[0], "trials": [], "at_edge": False}
            continue
        own = [trial for trial in trials if trial.model == contender.name]
        if wrong := next((trial.cell for trial in own if trial.role != "tune"), None):
            raise UsageError(f"{wrong} is a final cell: its test accuracy may not choose anything", "select on validation")
        best = max(own, key=lambda trial: (trial.validation, -trial.loss, -trial.lr))
        lost = [cell for cell in by_name.values() if cell.name in failed and cell.contender == contender.name]

        def started(name: str, chosen: bool = len(contender.starts) > 1) -> dict[str, str]:
            return {"start": by_name[name].run.model.initialisation} if chosen else {}

        tried = {cell.lr for cell in by_name.values() if cell.contender == contender.name} or set(contender.lrs)
        out[contender.name] = {
            "chosen": best.lr,
            **started(best.cell),
            "trials": [{"lr": trial.lr, **started(trial.cell), "validation": trial.validation, "loss": trial.loss} for trial in own]
            + [{"lr": cell.lr, **started(cell.name), "failed": failed[cell.name]} for cell in lost],
            "at_edge": len(tried) > 2 and best.lr in (min(tried), max(tried)),
        }
    return out


# ---- a whole experiment -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conducted:
    """A study whose cells have run."""

    study: Experiment
    folder: Path
    outcomes: tuple[Outcome, ...]
    """Of the final cells."""
    tuning: Tuning = field(default_factory=lambda: Tuning({}))
    retried: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    answers: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False, compare=False)
    """Cell → labels, right answers; read once."""

    def of(self, contender: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.model == contender]

    def steps(self, outcome: Outcome) -> int:
        """Optimizer steps of a finished cell; a small set is divided into even batches."""
        contender = next(contender for contender in self.study.contenders if contender.name == outcome.model)
        return outcome.samples // even_batches(outcome.size or self.study.images, contender.run.train.batch_size)[1]

    def correct(self, **where: float) -> dict[str, np.ndarray]:
        """Contender → (seeds, images): which test images each seed got right, of the cells of that `size`, `share` or `pretrained`."""
        chosen = [outcome for outcome in self.outcomes if all(getattr(outcome, name) == value for name, value in where.items())]
        names = dict.fromkeys(outcome.model for outcome in chosen)
        return {name: self.right([outcome for outcome in chosen if outcome.model == name]) for name in names}

    def right(self, outcomes: Sequence[Outcome]) -> np.ndarray:
        """(cells, images): which test images these cells got right."""
        return np.stack([self._right(outcome.cell) for outcome in outcomes])

    def interval(self, outcomes: Sequence[Outcome]) -> Interval | None:
        """Of a model's accuracy, over seeds and test images; None with one seed."""
        return accuracy_interval(self.right(outcomes)) if len(outcomes) > 1 else None

    def _right(self, cell: str) -> np.ndarray:
        if cell not in self.answers:
            own = RunFolder(self.folder / CELLS / cell).answers()
            labels, _ = next(iter(self.answers.values()), (own.labels, None))
            if not np.array_equal(labels, own.labels):
                raise UsageError(
                    f"cell {cell} was tested on other pictures than the rest", "models of different splits cannot stand in one table"
                )
            self.answers[cell] = labels, own.right
        return self.answers[cell][1]


def conduct(
    study: Experiment,
    out: str | Path,
    pool: Pool | None = None,
    work: Work = train_cell,
    declared: Experiment | None = None,
    description: str = "Final runs",
) -> Conducted:
    """Run what is not yet done of a study. Killed at any moment, the same call goes on where it was. `declared`: what its folder says of
    it, where something that the cells need was only found on the way; `description`: the words beside its progress."""
    pool, folder = pool or Pool(), declare(declared or study, out)
    tuning = tune(study, folder, pool, work)
    cells = final_cells(study, tuning.lrs, tuning.starts)
    finals = run_cells(cells, folder / CELLS, work, pool, threads=study.threads, description=description)
    outcomes = tuple(outcome_of(result, folder / CELLS / name) for name, result in finals.results.items())
    if not outcomes:
        raise FailedError("every cell failed", next(iter(finals.failed.values()), ""))
    return Conducted(study, folder, outcomes, tuning, {**(tuning.retried or {}), **finals.retried}, finals.failed)
