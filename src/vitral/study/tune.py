"""The learning rate of each contender, chosen on validation by short runs. The test split stays closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.base.errors import UsageError
from vitral.base.files import write_json
from vitral.base.layout import CELLS, TUNING
from vitral.base.manifest import vouching
from vitral.base.progress import say
from vitral.study.pool import Pool, Work, run_cells
from vitral.study.protocol import Study, tuning_cells
from vitral.study.table import Outcome, outcome_of


@dataclass(frozen=True)
class Tuning:
    """How the learning rates were chosen."""

    entries: dict[str, dict[str, Any]]
    """Contender → the chosen learning rate, each trial's validation accuracy and loss (or why it failed), and whether the best one
    lies at the edge of the grid; as tuning.json has it."""
    trials: tuple[Outcome, ...] = ()
    retried: Mapping[str, str] | None = None

    @property
    def lrs(self) -> dict[str, float]:
        return {name: entry["chosen"] for name, entry in self.entries.items()}

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


def tune(study: Study, folder: Path, pool: Pool, work: Work) -> Tuning:
    """Run the tuning cells that are not yet done, and choose."""
    done = run_cells(tuning_cells(study), folder / CELLS, work, pool, threads=study.train.threads, description="Tuning")
    trials = [outcome_of(result, folder / CELLS / name) for name, result in done.results.items()]
    tried = {trial.model for trial in trials}
    if any(len(contender.lrs) > 1 and contender.name not in tried for contender in study.contenders):
        done.raise_failures()  # a learning rate that is too high may fail, but one must be left
    tuning = Tuning(choose_lrs(study, trials, done.failed), tuple(trials), done.retried)
    with vouching(folder, TUNING):
        write_json(folder / TUNING, tuning.entries)
    if trials and not pool.quiet:
        say("learning rates chosen on validation: " + ", ".join(f"{name} {lr:g}" for name, lr in tuning.lrs.items()))
    return tuning


def choose_lrs(study: Study, trials: Sequence[Outcome], failed: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """For each contender the learning rate with the best validation accuracy; equal ones are decided by the lower validation loss.

    One whose cell is in `failed` (it diverged, say) cannot be chosen; it stays in the list with its reason.
    """
    failed = failed or {}
    lost = [cell for cell in tuning_cells(study) if cell.name in failed]
    out: dict[str, dict[str, Any]] = {}
    for contender in study.contenders:
        if len(contender.lrs) == 1:
            out[contender.name] = {"chosen": contender.lrs[0], "trials": [], "at_edge": False}
            continue
        own = [trial for trial in trials if trial.model == contender.name]
        if wrong := next((trial.cell for trial in own if trial.role != "tune"), None):
            raise UsageError(f"{wrong} is a final cell: its test accuracy may not choose anything", "select on validation")
        best = max(own, key=lambda trial: (trial.validation, -trial.loss, -trial.lr))
        out[contender.name] = {
            "chosen": best.lr,
            "trials": [{"lr": trial.lr, "validation": trial.validation, "loss": trial.loss} for trial in own]
            + [{"lr": cell.lr, "failed": failed[cell.name]} for cell in lost if cell.contender == contender.name],
            "at_edge": len(contender.lrs) > 2 and best.lr in (min(contender.lrs), max(contender.lrs)),
        }
    return out
