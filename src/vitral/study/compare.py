"""A fair fight: same splits, same augmentation, same budget, same tuning effort, final weights, the test split opened once per run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import FailedError, UsageError
from vitral.base.files import write_atomic, write_json
from vitral.config import DataConfig, TrainConfig
from vitral.study import plots
from vitral.study.cells import Budget, Study
from vitral.study.conclude import Pair, compare_pairs, conclude
from vitral.study.conduct import RESULT, Executed, Pool, common_result, execute, settling_remarks, tuning_remarks
from vitral.study.contenders import make_contenders
from vitral.study.pool import Work
from vitral.study.table import Table, row
from vitral.study.train_cell import read_answers, run_cell


@dataclass(frozen=True)
class Comparison:
    """A finished comparison."""

    folder: Path
    table: Table
    pairs: tuple[Pair, ...]
    conclusion: str
    result: dict[str, Any]
    """As result.json has it."""


def plan_compare(
    data: DataConfig,
    models: Sequence[str],
    budget: Budget,
    *,
    seeds: int = 3,
    train: TrainConfig | None = None,
    rates: Sequence[float] | None = None,
    tuning_share: float = 0.25,
    weights: dict[str, str] | None = None,
    image_size: int | tuple[int, int] | None = None,
    claim: str = "auto",
) -> Study:
    """The study that `vitral compare` runs. Opens the data to learn its size; the test split stays closed."""
    facts = data_facts(data, image_size)
    train = train or default_recipe()
    contenders = make_contenders(
        models,
        facts.size,
        facts.channels,
        facts.classes,
        rates=rates,
        weights=weights,
        tune=train.tune,
        weights_size=facts.size if image_size is not None else None,
    )
    if not facts.validation and any(len(contender.rates) > 1 for contender in contenders):
        raise UsageError(
            f"{data.name} has no validation pictures to choose rates on", "set --validation 0.1, or give one rate with --rates"
        )
    return Study(
        kind="compare",
        data=data,
        contenders=contenders,
        budget=budget,
        pictures=facts.pictures,
        seeds=tuple(range(seeds)),
        train=train,
        tuning_share=tuning_share,
        claim=("significance" if seeds > 1 else "none") if claim == "auto" else claim,  # type: ignore[arg-type]
    )


def compare(study: Study, out: str | Path, pool: Pool | None = None, work: Work = run_cell) -> Comparison:
    """Run a comparison, or go on with it; its table, tests, pictures and conclusion are in `out` at the end."""
    pool = pool or Pool()
    done = execute(study, out, pool, work)
    kept = [contender for contender in study.contenders if done.of(contender.name)]
    if not kept:
        raise FailedError("every cell failed", next(iter(done.failed.values()), ""))
    table = Table(
        tuple(row(done.of(contender.name), contender.note, claim=study.claim == "significance") for contender in kept),
        f"{study.data.name} at {study.budget.words}",
        tuple(f"{contender.name}: {contender.note}" for contender in kept),
    )
    correct = answers(done)
    enough = study.claim == "significance" and len(correct) > 1 and min(len(c) for c in correct.values()) > 1
    pairs = compare_pairs(correct) if enough else []
    conclusion = conclude(
        table.rows,
        pairs,
        data=study.data.name,
        budget=study.budget.words,
        remarks=[*tuning_remarks(done), *settling_remarks(done)],
        failed=len(done.failed),
        shared=pool.parallel if study.budget.kind == "seconds" else 1,
        pretrained=any(contender.weights for contender in kept),
        claim=study.claim == "significance",
    )
    result = {
        **common_result(done),
        "rows": table.to_dict(),
        "pairs": [pair.to_dict() for pair in pairs],
        "conclusion": conclusion,
        "figures": plots.draw_compare(done, table),
    }
    write_atomic(done.folder / "table.md", table.markdown() + f"\n{conclusion}\n")
    write_json(done.folder / RESULT, result)
    return Comparison(done.folder, table, tuple(pairs), conclusion, result)


def answers(done: Executed) -> dict[str, np.ndarray]:
    """Contender → (S, N): which test pictures each seed got right. All cells must have been shown the same pictures."""
    reference: np.ndarray | None = None
    out: dict[str, list[np.ndarray]] = {}
    for outcome in done.outcomes:
        predictions, labels = read_answers(done.folder / "cells" / outcome.cell)
        if reference is None:
            reference = labels
        if not np.array_equal(reference, labels):
            raise UsageError(
                f"cell {outcome.cell} was tested on other pictures than the rest", "models of different splits cannot stand in one table"
            )
        out.setdefault(outcome.model, []).append(predictions == labels)
    return {name: np.stack(seeds) for name, seeds in out.items()}


@dataclass(frozen=True)
class Facts:
    """What a plan must know of its data."""

    size: tuple[int, int]
    channels: int
    classes: int
    pictures: int
    validation: int
    smallest_class: int


def data_facts(config: DataConfig, image_size: int | tuple[int, int] | None = None) -> Facts:
    from vitral.data.datasets import open_data

    data = open_data(config, image_size=image_size)
    counts = np.bincount(data.train.labels, minlength=len(data.class_names))
    return Facts(data.image_size, data.channels, len(data.class_names), len(data.train), len(data.validation), int(counts.min()))


def default_recipe() -> TrainConfig:
    """The same for every contender: AdamW, cosine, 5 % warm-up, no regularisation beyond weight decay, final weights.

    One thread per cell: results then do not depend on how many cells run at a time.
    """
    return TrainConfig(batch_size=128, weight_decay=0.05, warmup=0.05, compile="no", threads=1, checkpoint_every=30.0)
