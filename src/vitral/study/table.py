"""The table of a study: one row per model, as text, Markdown or JSON. Accuracies are fractions; models of different splits are refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from vitral.base.errors import UsageError
from vitral.study.statistics import t_interval


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
    """Forward, per picture."""
    training_flops: float
    samples: int
    seconds: float
    memory: int
    """Peak bytes: of the device's memory on a GPU, of the process on a CPU."""
    split: str
    """Fingerprint of the data set and of how it was split."""
    role: str = "final"
    size: int = 0
    """Training pictures."""
    share: float = 1.0
    """Part of the budget."""


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

    def to_dict(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


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

    def to_dict(self) -> list[dict[str, Any]]:
        return [row.to_dict() for row in self.rows]

    def markdown(self) -> str:
        lines = [_line(HEADS), _line(["---"] + ["---:"] * (len(HEADS) - 1)), *(_line(_cells(row)) for row in self.rows)]
        notes = ["", *(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n".join(([f"**{self.title}**", ""] if self.title else []) + lines + notes) + "\n"

    def text(self) -> str:
        grid = [HEADS, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in grid) for i in range(len(HEADS))]
        lines = [
            "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True)))
            for line in grid
        ]
        lines.insert(1, "  ".join("─" * w for w in widths))
        notes = ["", *self.notes] if self.notes else []
        return "\n".join(([self.title] if self.title else []) + lines + notes) + "\n"


HEADS = ["model", "accuracy", "95 % interval", "n", "parameters", "FLOPs/picture", "seconds", "memory", "rate"]


def _cells(row: Row) -> list[str]:
    interval = f"{row.interval[0]:.2%} – {row.interval[1]:.2%}" if row.interval else "none (one seed)" if row.seeds == 1 else "none"
    return [
        row.model,
        f"{row.mean:.2%}",
        interval,
        str(row.seeds),
        f"{row.parameters:,}",
        short(row.flops),
        f"{row.seconds:.1f}",
        f"{short(row.memory)}B",
        f"{row.lr:g}",
    ]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def short(number: float) -> str:
    """1234567 → 1.23 M."""
    for limit, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:.3g} "


def row(outcomes: Iterable[Outcome], note: str = "", claim: bool = True) -> Row:
    """The row of one model's final cells; without a `claim` it has no interval.

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
    interval = t_interval(values) if claim and len(values) > 1 else None
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
    )
