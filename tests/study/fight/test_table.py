from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from vitral.base.errors import DataError, UsageError
from vitral.study.fight.statistics import Interval
from vitral.study.fight.table import Outcome, Table, outcome_of, row

CELL = Outcome(
    cell="vit-s0", model="vit", seed=0, lr=1e-3, accuracy=0.9, loss=0.3, validation=0.91, parameters=1_234_567, flops=2_000_000,
    training_flops=6e9, samples=1000, seconds=2.0, memory=3_000_000, split="digits/0.1/0", size=1000,
)  # fmt: skip


def cells(model: str = "vit", split: str = "digits/0.1/0", values=(0.9, 0.92, 0.94)) -> list[Outcome]:
    return [dataclasses.replace(CELL, model=model, seed=seed, accuracy=value, split=split) for seed, value in enumerate(values)]


def test_row_and_renderings() -> None:
    made = row(reversed(cells()), Interval(0.92, 0.87, 0.96, 3))
    assert made.mean == pytest.approx(0.92) and made.seeds == 3 and made.accuracies == (0.9, 0.92, 0.94)
    assert made.interval == (0.87, 0.96)
    table = Table((made, row(cells("cnn", values=(0.8,)), None)), "digits")
    assert {"model", "seeds", "mean", "interval", "parameters", "flops", "seconds", "memory"} <= set(dataclasses.asdict(made))
    assert [entry.interval for entry in table.rows] == [made.interval, None]
    assert "| vit | 92.0 % |" in table.text(markdown=True) and "1,234,567" in table.text()
    assert "none (one seed)" in table.text()
    described = row(cells(), None)
    assert described.interval is None and described.accuracies == made.accuracies and "one seed" not in Table((described,)).text()


def test_different_splits_are_refused() -> None:
    with pytest.raises(UsageError, match="splits"):
        Table((row(cells(), None), row(cells("cnn", split="digits/0.1/7"), None)))
    with pytest.raises(UsageError, match="splits"):
        row([*cells(), *cells(split="digits/0.2/0")], None)


def test_tuning_cells_and_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="tuning"):
        row([dataclasses.replace(CELL, role="tune")], None)
    with pytest.raises(UsageError, match="at least"):
        row([], None)


def test_a_damaged_cell_is_named() -> None:
    assert outcome_of(dataclasses.asdict(CELL), Path("cells/vit")) == CELL
    with pytest.raises(DataError, match=r"cells/vit/cell\.json"):
        outcome_of({"cell": "vit"}, Path("cells/vit"))
