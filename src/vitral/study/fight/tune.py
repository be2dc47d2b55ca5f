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
from vitral.study.fight.pool import Pool, Work, run_cells
from vitral.study.fight.protocol import Cell, Study, tuning_cells
from vitral.study.fight.table import Outcome, outcome_of

WIDENINGS = 4
"""So often a grid is widened by one learning rate; a best one that still lies at the edge is named."""


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


def tune(study: Study, folder: Path, pool: Pool, work: Work) -> Tuning:
    """Run the tuning cells that are not yet done, and choose; while a best one lies at the edge of its grid, go on beyond it."""
    grids = {contender.name: contender.lrs for contender in study.contenders}
    widening = [contender.name for contender in study.contenders if contender.widens]
    for round_ in range(WIDENINGS + 1):
        cells = tuning_cells(study, grids)
        done = run_cells(cells, folder / CELLS, work, pool, threads=study.train.threads, description="Tuning")
        trials = [outcome_of(result, folder / CELLS / name) for name, result in done.results.items()]
        tried = {trial.model for trial in trials}
        if any(contender.is_tuned and contender.name not in tried for contender in study.contenders):
            done.raise_failures()  # a learning rate that is too high may fail, but one must be left
        entries = choose_lrs(study, trials, done.failed, cells)
        wider = {name: widened(grids[name], entries[name]["chosen"]) for name in widening if entries[name]["at_edge"]}
        if not wider or round_ == WIDENINGS:
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
    study: Study, trials: Sequence[Outcome], failed: Mapping[str, str] | None = None, cells: Sequence[Cell] | None = None
) -> dict[str, dict[str, Any]]:
    """For each contender the learning rate (and start) with the best validation accuracy; equal ones are decided by the lower loss.

    One whose cell is in `failed` (it diverged, say) cannot be chosen; it stays in the list with its reason.
    """
    failed = failed or {}
    known = {cell.name: cell for cell in cells or tuning_cells(study)}
    out: dict[str, dict[str, Any]] = {}
    for contender in study.contenders:
        if not contender.is_tuned:
            out[contender.name] = {"chosen": contender.lrs[0], "trials": [], "at_edge": False}
            continue
        own = [trial for trial in trials if trial.model == contender.name]
        if wrong := next((trial.cell for trial in own if trial.role != "tune"), None):
            raise UsageError(f"{wrong} is a final cell: its test accuracy may not choose anything", "select on validation")
        best = max(own, key=lambda trial: (trial.validation, -trial.loss, -trial.lr))
        lost = [cell for cell in known.values() if cell.name in failed and cell.contender == contender.name]
        several = len(contender.starts) > 1

        def started(name: str, several: bool = several) -> dict[str, str]:
            return {"start": known[name].run.model.initialisation} if several else {}

        tried = {cell.lr for cell in known.values() if cell.contender == contender.name} or set(contender.lrs)
        out[contender.name] = {
            "chosen": best.lr,
            **started(best.cell),
            "trials": [{"lr": trial.lr, **started(trial.cell), "validation": trial.validation, "loss": trial.loss} for trial in own]
            + [{"lr": cell.lr, **started(cell.name), "failed": failed[cell.name]} for cell in lost],
            "at_edge": len(tried) > 2 and best.lr in (min(tried), max(tried)),
        }
    return out
