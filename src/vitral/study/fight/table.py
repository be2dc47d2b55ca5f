"""The table of a study: one row per model, as text, Markdown or JSON. Accuracies are fractions; models of different splits are refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitral.base.errors import DataError, UsageError
from vitral.base.layout import CELL
from vitral.base.text import NOTHING, byte_size, percent, short, table
from vitral.study.fight.statistics import Interval


@dataclass(frozen=True)
class Outcome:
    """What one finished cell left behind."""

    cell: str
    model: str
    seed: int
    lr: float
    accuracy: float
    """On test, opened once; for cells that tune, on validation."""
    loss: float
    validation: float
    parameters: int
    flops: int
    """Forward, per image."""
    training_flops: float
    samples: int
    seconds: float
    memory: int
    """Peak bytes: of the device's memory on a GPU, of the process on a CPU."""
    split: str
    """Fingerprint of the data set and of how it was split."""
    role: str = "final"
    size: int = 0
    """Training images."""
    share: float = 1.0
    """Part of the budget."""
    pretrained: int = 0
    """Other images that it had learnt from before."""
    shots: int = 0
    """Images a class for a linear probe of what it had learnt before; 0: it learnt wholly."""


def outcome_of(result: dict[str, Any], folder: Path) -> Outcome:
    """What a cell left in `folder`."""
    try:
        return Outcome(**result)
    except TypeError as error:
        raise DataError(f"{folder / CELL} is damaged ({error})", f"remove {folder} and run the same command again") from error


@dataclass(frozen=True)
class Row:
    """One model: mean over seeds, interval, n, and what it cost."""

    model: str
    seeds: int
    mean: float
    interval: tuple[float, float] | None
    parameters: int
    flops: int
    seconds: float
    memory: int
    accuracies: tuple[float, ...]
    validation: float
    training_flops: float
    samples: int
    lr: float
    split: str
    size: int = 0
    note: str = ""
    share: float = 1.0
    """Part of the budget."""
    pretrained: int = 0
    shots: int = 0


@dataclass(frozen=True)
class Table:
    """Rows of one data set and one split."""

    rows: tuple[Row, ...]
    title: str = ""
    notes: tuple[str, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        splits = {row.split: row.model for row in self.rows}
        if len(splits) > 1:
            (one, first), (other, second), *_ = splits.items()
            raise UsageError(
                f"{first} and {second} were measured on different splits ({one} and {other})",
                "a table holds one split: run both with the same data, validation share and split seed",
            )

    def text(self, markdown: bool = False) -> str:
        title = [f"**{self.title}**\n" if markdown else self.title] if self.title else []
        notes = ["", *(f"- {note}" if markdown else note for note in self.notes)] if self.notes else []
        return "\n".join([*title, table([_texts(row) for row in self.rows], _HEADER, "lr", markdown), *notes]) + "\n"


_HEADER = ["model", "accuracy", "95 % interval", "n", "parameters", "FLOPs/picture", "seconds", "memory", "lr"]


def _texts(row: Row) -> list[str]:
    interval = " – ".join(map(percent, row.interval)) if row.interval else "none (one seed)" if row.seeds == 1 else "none"
    return [
        row.model,
        percent(row.mean),
        interval,
        str(row.seeds),
        f"{row.parameters:,}",
        short(row.flops),
        f"{row.seconds:.1f}",
        byte_size(row.memory),
        f"{row.lr:g}" if row.samples else NOTHING,
    ]


def row(outcomes: Iterable[Outcome], interval: Interval | None, note: str = "") -> Row:
    """The row of one model's final cells; `interval` is that of their accuracy, None with one seed or where none is claimed.

    A row of cells that selected anything on test cannot be made: only final cells count.
    """
    cells = sorted(outcomes, key=lambda outcome: outcome.seed)
    if not cells:
        raise UsageError("a row needs at least one finished cell", "see the cells that failed")
    if tuning := [cell.cell for cell in cells if cell.role != "final"]:
        raise UsageError(f"{tuning[0]} is a tuning cell, its accuracy was used to choose", "put final cells into the table")
    if len(splits := {cell.split for cell in cells}) > 1:
        raise UsageError(
            f"the seeds of {cells[0].model} were measured on different splits ({' and '.join(sorted(splits))})", "use one split seed"
        )
    values = tuple(cell.accuracy for cell in cells)
    first, count = cells[0], len(cells)
    return Row(
        model=first.model,
        seeds=count,
        mean=sum(values) / count,
        interval=(interval.low, interval.high) if interval else None,
        parameters=first.parameters,
        flops=first.flops,
        seconds=sum(cell.seconds for cell in cells) / count,
        memory=max(cell.memory for cell in cells),
        accuracies=values,
        validation=sum(cell.validation for cell in cells) / count,
        training_flops=sum(cell.training_flops for cell in cells) / count,
        samples=round(sum(cell.samples for cell in cells) / count),
        lr=first.lr,
        split=first.split,
        size=first.size,
        note=note,
        share=first.share,
        pretrained=first.pretrained,
        shots=first.shots,
    )
