"""The scaling lab: accuracy against data, accuracy against compute. (Cost against tokens is in `tokens.py`.)

Data: nested class-balanced subsets × models × seeds, each run with the same number of samples and the same recipe (no extra
regularisation on small subsets), a power law for each model, and where the lines cross. Compute: several sizes of each family,
trained from the start at several parts of the budget, against training FLOPs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import FailedError, UsageError
from vitral.base.files import write_atomic, write_json
from vitral.config import DataConfig, TrainConfig
from vitral.study import plots
from vitral.study.cells import Budget, Study
from vitral.study.compare import data_facts, default_recipe
from vitral.study.conclude import Pair, compare_pairs, missing
from vitral.study.conduct import RESULT, Executed, Pool, common_result, execute, settling_remarks, tuning_remarks
from vitral.study.contenders import make_contenders
from vitral.study.pool import Work
from vitral.study.statistics import Crossing, PowerLaw, crossing, power_law_fit
from vitral.study.table import Outcome, Table, row
from vitral.study.train_cell import read_answers, run_cell

SHARES = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0)
DATA_MODELS = ("vit-small", "vit", "cnn")
COMPUTE_MODELS = ("vit-small", "vit", "vit-large", "hybrid-small", "hybrid", "resnet18", "resnet50")
COMPUTE_SHARES = (0.25, 1.0)
BENT = 0.3
"""Largest |log2| between points and line up to which we call it a power law: a quarter off."""


@dataclass(frozen=True)
class Scaling:
    """A finished scaling study."""

    folder: Path
    tables: tuple[Table, ...]
    conclusion: str
    result: dict[str, Any]


def plan_scale(
    kind: str,
    data: DataConfig,
    budget: Budget,
    *,
    models: Sequence[str] | None = None,
    sizes: Sequence[float] | None = None,
    seeds: int = 3,
    train: TrainConfig | None = None,
    rates: Sequence[float] | None = None,
    tuning_share: float = 0.25,
    image_size: int | tuple[int, int] | None = None,
) -> Study:
    """The study that `vitral scale` runs; `sizes` are shares (< 1, or 1 for all) or numbers of pictures."""
    facts = data_facts(data, image_size)
    train = train or default_recipe()
    names = tuple(models or (DATA_MODELS if kind == "data" else COMPUTE_MODELS))
    contenders = make_contenders(names, facts.size, facts.channels, facts.classes, rates=rates)
    if not facts.validation and any(len(contender.rates) > 1 for contender in contenders):
        raise UsageError(
            f"{data.name} has no validation pictures to choose rates on", "set --validation 0.1, or give one rate with --rates"
        )
    counts: tuple[int, ...] = ()
    if kind == "data":
        if (wrong := next((size for size in sizes or () if not 0 < size <= facts.pictures), None)) is not None:
            raise UsageError(
                f"a size of {wrong:g} is neither a share up to 1 nor a number of the {facts.pictures:,} training pictures",
                "use for example --sizes 0.1,0.3,1",
            )
        wanted = [round(size * facts.pictures) if size <= 1 else round(size) for size in (sizes or SHARES)]
        # Fewer pictures than classes cannot teach all of them.
        counts = tuple(sorted({min(facts.pictures, max(facts.classes, count)) for count in wanted}))
    return Study(
        kind=kind,  # type: ignore[arg-type]
        data=data,
        contenders=contenders,
        budget=budget,
        pictures=facts.pictures,
        seeds=tuple(range(seeds)),
        sizes=counts,
        shares=COMPUTE_SHARES if kind == "compute" else (1.0,),
        train=train,
        tuning_share=tuning_share,
        claim="significance" if seeds > 1 else "none",
    )


def scale(study: Study, out: str | Path, pool: Pool | None = None, work: Work = run_cell) -> Scaling:
    """Run a scaling study, or go on with it."""
    done = execute(study, out, pool, work)
    if not done.outcomes:
        raise FailedError("every cell failed", next(iter(done.failed.values()), ""))
    return _data(done) if study.kind == "data" else _compute(done)


# ---- data ----------------------------------------------------------------------------------------------------------------------


def _data(done: Executed) -> Scaling:
    study = done.study
    by_model = {contender.name: done.of(contender.name) for contender in study.contenders if done.of(contender.name)}
    fits = {name: fit for name, cells in by_model.items() if (fit := fit_cells(cells, lambda cell: cell.size)) is not None}
    crossings = {f"{a} and {b}": crossing(fits[a], fits[b]) for a, b in combinations(fits, 2)}
    tables = tuple(
        Table(
            tuple(
                row([cell for cell in cells if cell.size == size])
                for cells in by_model.values()
                if any(cell.size == size for cell in cells)
            ),
            f"{size:,} pictures",
        )
        for size in study.sizes
    )
    ends = {size: _pairs_at(done, size) for size in (study.sizes[0], study.sizes[-1])}
    conclusion = conclude_data(study, fits, crossings, ends, [*remarks(done), *step_remarks(done)])
    result = {
        **common_result(done),
        "rows": [entry for table in tables for entry in table.to_dict()],
        "fits": {name: fit.to_dict() for name, fit in fits.items()},
        "crossings": {name: found.to_dict() for name, found in crossings.items()},
        "pairs": [{**pair.to_dict(), "size": size} for size, pairs in ends.items() for pair in pairs],
        "conclusion": conclusion,
        "figures": plots.draw_data(done.folder, by_model, fits, crossings, f"{study.data.name}, {study.budget.words} for each size"),
    }
    return _write(done, tables, conclusion, result)


def fit_cells(cells: Sequence[Outcome], place: Any) -> PowerLaw | None:
    """A power law over the places that have every seed; None with fewer than two of them."""
    seeds = sorted({cell.seed for cell in cells})
    errors: dict[float, dict[int, float]] = {}
    for cell in cells:
        errors.setdefault(place(cell), {})[cell.seed] = 1 - cell.accuracy
    whole = sorted(at for at, found in errors.items() if len(found) == len(seeds))
    if len(whole) < 2:
        return None
    return power_law_fit(whole, np.array([[errors[at][seed] for at in whole] for seed in seeds]), floor=1e-4)


def _pairs_at(done: Executed, size: int) -> list[Pair]:
    """Tests between all models at one size."""
    correct: dict[str, list[np.ndarray]] = {}
    for outcome in done.outcomes:
        if outcome.size == size:
            predictions, labels = read_answers(done.folder / "cells" / outcome.cell)
            correct.setdefault(outcome.model, []).append(predictions == labels)
    stacked = {name: np.stack(seeds) for name, seeds in correct.items() if len(seeds) > 1}
    return compare_pairs(stacked) if len(stacked) > 1 and done.study.claim == "significance" else []


def remarks(done: Executed) -> list[str]:
    """What a reader must know of the cells behind the lines."""
    tuned = ["Rates were chosen with all training pictures and a part of the budget, and kept for every size and length of training."]
    chosen = any(entry["trials"] for entry in done.tuning.values())
    return (tuned if chosen else []) + tuning_remarks(done) + settling_remarks(done) + ([missing(len(done.failed))] if done.failed else [])


def step_remarks(done: Executed) -> list[str]:
    """Sizes below a batch take a step for every few pictures: at the same samples that is more steps than the whole set takes."""
    study = done.study
    batch = study.train.batch_size
    below = [size for size in study.sizes[:-1] if size < batch]
    taken = {size: {done.steps(outcome) for outcome in done.outcomes if outcome.size == size} for size in (*below, study.sizes[-1])}
    if not below or not all(taken.values()):
        return []

    def steps(size: int) -> str:
        few, most = min(taken[size]), max(taken[size])
        return f"{few:,}" if few == most else f"{few:,} to {most:,}"

    listed = ", ".join(f"{steps(size)} with {size:,} pictures" for size in below)
    return [
        f"Sizes below a batch of {batch:,} are trained in batches of their own size, so they took other numbers of optimizer steps: "
        f"{listed}, against {steps(study.sizes[-1])} with {study.sizes[-1]:,}."
    ]


def conclude_data(
    study: Study,
    fits: dict[str, PowerLaw],
    crossings: dict[str, Crossing],
    ends: dict[int, list[Pair]],
    remarks: Sequence[str] = (),
) -> str:
    sentences = []
    for size, pairs in ends.items():
        told = [f"{pair.ranked[0]} beats {pair.ranked[1]} by {abs(pair.difference) * 100:.1f} points" for pair in pairs if pair.different]
        open_pairs = [f"{pair.a} and {pair.b}" for pair in pairs if not pair.different]
        parts = ([", ".join(told)] if told else []) + ([f"not told apart: {', '.join(open_pairs)}"] if open_pairs else [])
        sentences.append(f"With {size:,} training pictures: {'; '.join(parts) or f'no test was made ({_untested(study)})'}.")
    sentences += [f"{pair}: {found}." for pair, found in crossings.items()]
    sentences += [f"The error of {name} {fit}." for name, fit in fits.items()]
    if bent := [name for name, fit in fits.items() if fit.residual > BENT]:
        worst = 2 ** max(fits[name].residual for name in bent)
        sentences.append(
            f"The points of {', '.join(bent)} do not lie on a power law (off by up to {worst:.1f} times): take their crossings with care."
        )
    sentences += remarks
    sentences.append(
        f"This holds for {study.data.name}, the same {study.budget.words} at every size, and no extra regularisation on small subsets; "
        f"beyond {study.sizes[-1]:,} pictures it is extrapolation."
    )
    return " ".join(sentences)


def _untested(study: Study) -> str:
    if len(study.contenders) == 1:
        return "one model"
    return "one seed" if len(study.seeds) == 1 else "fewer than two models have two finished seeds"


# ---- compute -------------------------------------------------------------------------------------------------------------------


def _compute(done: Executed) -> Scaling:
    study = done.study
    families: dict[str, list[Outcome]] = {}
    for contender in study.contenders:
        family = "resnet" if contender.family.startswith("resnet") else contender.family
        families.setdefault(family, []).extend(done.of(contender.name))
    families = {name: cells for name, cells in families.items() if cells}
    fits = {name: fit for name, cells in families.items() if (fit := fit_cells(cells, lambda cell: cell.training_flops)) is not None}
    bent = [name for name, fit in fits.items() if fit.residual > BENT]
    crossings = {
        f"{a} and {b}": crossing(fits[a], fits[b])
        for a, b in combinations(fits, 2)
        # Families are measured at different FLOPs, so no measured means can confirm a crossing: both fits must hold by themselves.
        if _overlap(fits[a], fits[b]) and a not in bent and b not in bent
    }
    tables = tuple(
        Table(
            tuple(
                row(cells) for contender in study.contenders if (cells := [cell for cell in done.of(contender.name) if cell.share == share])
            ),
            f"{share:.0%} of {study.budget.words}",
        )
        for share in study.shares
    )
    lines = [f"The error of {name} {fit}, n being training FLOPs." for name, fit in fits.items() if name not in bent]
    lines += [f"{pair}: {found} training FLOPs." for pair, found in crossings.items()]
    if bent:
        worst = 2 ** max(fits[name].residual for name in bent)
        lines.append(
            f"The points of {', '.join(bent)} do not lie on one power law (off by up to {worst:.1f} times): "
            "size and length of training do not trade evenly there, so no exponent and no crossing is claimed."
        )
    lines += remarks(done)
    lines.append(f"This holds for {study.data.name} and runs of up to {study.budget.words}; training counts as three forward passes.")
    result = {
        **common_result(done),
        "rows": [entry for table in tables for entry in table.to_dict()],
        "fits": {name: fit.to_dict() for name, fit in fits.items()},
        "crossings": {name: found.to_dict() for name, found in crossings.items()},
        "pairs": [],
        "conclusion": " ".join(lines),
        "figures": plots.draw_compute(done.folder, families, f"{study.data.name}, up to {study.budget.words}"),
    }
    return _write(done, tables, " ".join(lines), result)


def _overlap(first: PowerLaw, second: PowerLaw) -> bool:
    return max(min(first.sizes), min(second.sizes)) < min(max(first.sizes), max(second.sizes))


def _write(done: Executed, tables: tuple[Table, ...], conclusion: str, result: dict[str, Any]) -> Scaling:
    notes = [f"{contender.name}: {contender.note}" for contender in done.study.contenders if done.of(contender.name)]
    *first, last = tables
    tables = (*first, dataclasses.replace(last, notes=tuple(notes)))  # once, under the last one
    write_atomic(done.folder / "table.md", "\n".join(table.markdown() for table in tables) + f"\n{conclusion}\n")
    write_json(done.folder / RESULT, result)
    return Scaling(done.folder, tables, conclusion, result)
