"""What a study will take, before it is spent: a few steps of each contender, multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vitral.base.device import pick_device, set_threads
from vitral.base.errors import UsageError
from vitral.base.files import read_json
from vitral.base.progress import track
from vitral.study.cells import EVALUATIONS, Cell, Study, final_cells, tuning_cells
from vitral.study.conduct import TUNING
from vitral.study.measure import measure
from vitral.study.pool import RESULT

CELL_START = 1.5
"""Seconds to open data, build a model and write its folder."""
EVALUATED = 0.3
"""Pictures validated and tested per training picture, about."""


@dataclass(frozen=True)
class Prediction:
    cells: int
    seconds: float
    """Wall-clock, with `parallel` cells at a time."""
    per_model: dict[str, float]
    """Seconds of one after the other."""

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    def __str__(self) -> str:
        if not self.cells:
            return "nothing is left to run"
        slowest = max(self.per_model, key=lambda name: self.per_model[name])
        most = f"most of it {slowest}: {duration(self.per_model[slowest])} one after the other"
        return f"{self.cells} cells, about {duration(self.seconds)} ({most})"


def predict(study: Study, parallel: int = 1, quiet: bool = False, folder: str | Path | None = None) -> Prediction:
    """Time a few training steps of each contender on this machine. What is finished in the study's `folder` is left out."""
    device = pick_device(study.train.device)
    if study.train.threads:
        set_threads(study.train.threads)
    cells = left(study, folder)
    # A GPU spends small batches on launching kernels: it is timed with the study's own. A CPU's time per picture hardly changes.
    batch = min(32, study.train.batch_size) if device.type == "cpu" else study.train.batch_size
    per_model: dict[str, float] = {}
    unfinished = [contender for contender in study.contenders if any(cell.contender == contender.name for cell in cells)]
    for contender in track(unfinished, "Predicting", quiet=quiet):
        own = [cell for cell in cells if cell.contender == contender.name]
        speed = measure(contender.model, batch, device, repeats=2, train=study.train)
        evaluation = EVALUATIONS * EVALUATED / 3 * study.pictures * speed.forward_seconds
        per_model[contender.name] = sum(CELL_START + evaluation + _training(study, cell, speed.training_seconds) for cell in own)
    return Prediction(len(cells), sum(per_model.values()) / max(1, min(parallel, len(cells))), per_model)


def left(study: Study, folder: str | Path | None) -> list[Cell]:
    """The cells that are yet to run. Their names hold the rate, which is known once tuning is done."""
    rates = {contender.name: contender.rates[0] for contender in study.contenders}
    if folder is not None and (Path(folder) / TUNING).is_file():
        chosen = read_json(Path(folder) / TUNING)
        rates |= {name: entry["chosen"] for name, entry in chosen.items() if name in rates}
    cells = tuning_cells(study) + final_cells(study, rates)
    return [cell for cell in cells if folder is None or not (Path(folder) / "cells" / cell.name / RESULT).is_file()]


def _training(study: Study, cell: Cell, seconds: float) -> float:
    samples = study.budget.times(cell.share).samples(cell.training_flops)
    return study.budget.amount * cell.share if samples is None else samples * seconds


def check_hours(prediction: Prediction, most: float | None) -> None:
    if most is not None and prediction.hours > most:
        raise UsageError(
            f"the study would take about {duration(prediction.seconds)}, more than --max-hours {most:g}",
            "use a smaller budget, fewer sizes or fewer seeds",
        )


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
