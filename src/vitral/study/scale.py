"""The scaling lab: accuracy against data, accuracy against compute. (Cost against tokens is in `token_cost.py`.)

Data: nested class-balanced subsets × models × seeds, each run with the same number of samples and the same recipe (no extra
regularisation on small subsets), a power law for each model, and where the lines cross. Compute: several sizes of each family,
trained from the start at several parts of the budget, against training FLOPs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from vitral.base.errors import UsageError
from vitral.base.progress import say
from vitral.config import DataConfig, TrainConfig
from vitral.data.datasets import open_data
from vitral.study import plots
from vitral.study.conclude import Pair, compare_pairs, missing
from vitral.study.conduct import Conducted, common_values, conduct, copy_remarks, settling_remarks
from vitral.study.contenders import fit_model, make_contenders
from vitral.study.forecast import Forecast, forecast
from vitral.study.pool import Pool, Work
from vitral.study.protocol import Budget, Study
from vitral.study.recipe import Recipe
from vitral.study.result import Result, default_folder, finish
from vitral.study.statistics import Crossing, PowerLaw, crossing, power_law_fit
from vitral.study.table import Outcome, Table, row
from vitral.study.token_cost import study_cost, varied
from vitral.study.train_cell import train_cell

K = TypeVar("K")
SHARES = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0)
DATA_MODELS = ("vit-small", "vit", "cnn")
COMPUTE_MODELS = ("vit-small", "vit", "vit-large", "hybrid-small", "hybrid", "resnet18", "resnet50")
COMPUTE_SHARES = (0.25, 1.0)
PATCHES = (2, 4, 8, 16)
BENT = 0.3
"""Largest |log2| between points and line up to which we call it a power law: a quarter off."""


def scale(
    data: str,
    kind: Literal["data", "compute", "cost"] = "data",
    models: Sequence[str] | None = None,
    *,
    budget: str = "samples=50000",
    sizes: Sequence[float] | None = None,
    seeds: int = 3,
    lrs: Sequence[float] | None = None,
    tuning_share: float = 0.25,
    image_sizes: Sequence[int] | None = None,
    patches: Sequence[int] = PATCHES,
    max_hours: float | None = None,
    agree: Callable[[Forecast], None] | None = None,
    out: str | Path | None = None,
    **recipe: Any,
) -> Result:
    """How accuracy grows with data or compute, or cost with tokens: `vitral scale` as a call.

    - data: a name from `vitral data list` or "folder:PATH".
    - kind: "data": nested subsets of `sizes` (shares up to 1, or numbers of images); "compute": several sizes of each family;
      "cost": time and memory of one ViT as `patches` and `image_sizes` change.
    - budget, seeds, lrs, tuning_share, recipe: as in `compare`.
    - max_hours: refuse what is forecast to take longer. `agree` is called with the forecast before anything is spent, and may raise.
    - out: the study's folder (runs/scale-KIND-DATA); a study in it goes on where it was stopped.

        result = vitral.study.scale("digits", models=["vit-small", "cnn"], sizes=[0.1, 0.3, 1], budget="samples=20000")
        print(result.table, result.values["crossings"])
    """
    shared = Recipe(**recipe)
    folder = Path(out) if out else default_folder(f"scale-{kind}", data)
    if kind == "cost":
        return _cost(shared, data, models or ("vit",), image_sizes, patches, folder)
    study = scaling(
        kind,
        shared.data_config(data),
        Budget.parse(budget),
        models=models,
        sizes=sizes,
        seeds=seeds,
        train=shared.train_config(),
        lrs=lrs,
        tuning_share=tuning_share,
        image_size=shared.image_size,
        recipes=shared.recipes(),
    )
    pool = Pool(shared.cells_at_a_time(), shared.ray, shared.quiet)
    if max_hours is not None or agree is not None:
        expected = forecast(study, pool.parallel, shared.quiet, folder)
        say(f"forecast: {expected}")
        expected.check(max_hours)
        if agree is not None:
            agree(expected)
    return run_scaling(study, folder, pool)


def _cost(recipe: Recipe, data: str, models: Sequence[str], image_sizes: Sequence[int] | None, patches: Sequence[int], out: Path) -> Result:
    opened = open_data(recipe.data_config(data), image_size=recipe.image_size)
    if len(models) > 1:
        raise UsageError("the cost study takes one model", "use --models vit")
    base = fit_model(models[0], opened.image_size, opened.channels, len(opened.class_names))
    if base.family != "vit":
        raise UsageError(f"{models[0]} has no patches to change", "use a ViT, for example --models vit")
    side = opened.image_size[0]
    configs = varied(base, image_sizes or [side, 2 * side, 4 * side], patches)
    batch = min(recipe.batch_size, 16 if recipe.cells_at_a_time() > 1 else 64)
    say(f"measuring {len(configs)} models of up to {max(config.tokens for config in configs):,} tokens, {batch} pictures at a time")
    return study_cost(configs, out, batch_size=batch, device=recipe.device, threads=recipe.threads, quiet=recipe.quiet)


def scaling(
    kind: Literal["data", "compute"],
    data: DataConfig,
    budget: Budget,
    *,
    models: Sequence[str] | None = None,
    sizes: Sequence[float] | None = None,
    seeds: int = 3,
    train: TrainConfig | None = None,
    lrs: Sequence[float] | None = None,
    tuning_share: float = 0.25,
    image_size: int | tuple[int, int] | None = None,
    recipes: Mapping[str, dict[str, Any]] | None = None,
) -> Study:
    """The protocol of a scaling study; `sizes` are shares (< 1, or 1 for all) or numbers of images."""
    opened = open_data(data, image_size=image_size)
    whole, classes = len(opened.train), len(opened.class_names)
    counts: tuple[int, ...] = ()
    if kind == "data":
        if (wrong := next((size for size in sizes or () if not 0 < size <= whole), None)) is not None:
            raise UsageError(
                f"a size of {wrong:g} is neither a share up to 1 nor a number of the {whole:,} training pictures",
                "use for example --sizes 0.1,0.3,1",
            )
        wanted = [round(size * whole) if size <= 1 else round(size) for size in (sizes or SHARES)]
        # Fewer images than classes cannot teach all of them.
        counts = tuple(sorted({min(whole, max(classes, count)) for count in wanted}))
    return Study(
        kind=kind,
        data=data,
        contenders=make_contenders(models or (DATA_MODELS if kind == "data" else COMPUTE_MODELS), opened, lrs=lrs, recipes=recipes),
        budget=budget,
        images=whole,
        seeds=tuple(range(seeds)),
        sizes=counts,
        shares=COMPUTE_SHARES if kind == "compute" else (1.0,),
        train=train or Recipe().train_config(),
        tuning_share=tuning_share,
        claim="significance" if seeds > 1 else "none",
    )


def run_scaling(study: Study, out: str | Path, pool: Pool | None = None, work: Work = train_cell) -> Result:
    """Run a scaling study, or go on with it."""
    done = conduct(study, out, pool, work)
    return _data(done) if study.kind == "data" else _compute(done)


# ---- data ----------------------------------------------------------------------------------------------------------------------


def _data(done: Conducted) -> Result:
    study = done.study
    by_model = {contender.name: done.of(contender.name) for contender in study.contenders if done.of(contender.name)}
    fits = {name: fit for name, cells in by_model.items() if (fit := fit_cells(cells, lambda cell: cell.size)) is not None}
    crossings = {f"{a} and {b}": crossing(fits[a], fits[b]) for a, b in combinations(fits, 2)}
    tables = _tables(done, "size", {size: f"{size:,} pictures" for size in study.sizes})
    ends = _pairs(done, {size: done.correct(size=size) for size in (study.sizes[0], study.sizes[-1])})
    conclusion = conclude_data(study, fits, crossings, ends, [*remarks(done), *step_remarks(done)])
    pairs = [{**pair.to_dict(), "size": size} for size, pairs in ends.items() for pair in pairs]
    figures = plots.draw_data(done, by_model, fits, crossings, f"{study.data.name}, {study.budget.words} for each size")
    return _finish(done, tables, fits, crossings, pairs, conclusion, figures)


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


def _pairs(done: Conducted, groups: dict[K, dict[str, np.ndarray]]) -> dict[K, list[Pair]]:
    """Tests between all models at each place, counted together; those with one seed are left out."""
    claimed = done.study.claim == "significance"
    several = {place: {name: seeds for name, seeds in correct.items() if claimed and len(seeds) > 1} for place, correct in groups.items()}
    return compare_pairs(several)


def remarks(done: Conducted) -> list[str]:
    """What a reader must know of the cells behind the lines."""
    tuned = [
        "Learning rates were chosen with all training pictures and a part of the budget, and kept for every size and length of training."
    ]
    chosen = any(entry["trials"] for entry in done.tuning.entries.values())
    return (
        (tuned if chosen else [])
        + done.tuning.remarks()
        + settling_remarks(done)
        + copy_remarks(done)
        + ([missing(len(done.failed))] if done.failed else [])
    )


def step_remarks(done: Conducted) -> list[str]:
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


def _compute(done: Conducted) -> Result:
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
    tables = _tables(done, "share", {share: f"{share:.0%} of {study.budget.words}" for share in study.shares})
    lines = [f"The error of {name} {fit}, n being training FLOPs." for name, fit in fits.items() if name not in bent]
    lines += [f"{pair}: {found} training FLOPs." for pair, found in crossings.items()]
    if bent:
        worst = 2 ** max(fits[name].residual for name in bent)
        lines.append(
            f"The points of {', '.join(bent)} do not lie on one power law (off by up to {worst:.1f} times): "
            "size and length of training do not trade evenly there, so no exponent and no crossing is claimed."
        )
    pairs = _pairs(done, {share: done.correct(share=share) for share in study.shares})
    lines += _order(pairs, study)
    lines += remarks(done)
    lines.append(f"This holds for {study.data.name} and runs of up to {study.budget.words}; training counts as three forward passes.")
    figures = plots.draw_compute(done, families, f"{study.data.name}, up to {study.budget.words}")
    tested = [{**pair.to_dict(), "share": share} for share, found in pairs.items() for pair in found]
    return _finish(done, tables, fits, crossings, tested, " ".join(lines), figures)


def _order(pairs: dict[float, list[Pair]], study: Study) -> list[str]:
    """What may be said of who is above whom: only what a test tells, at the same part of the budget."""
    count = sum(map(len, pairs.values()))
    if not count:
        return [f"No order of the models is claimed: no test was made ({_untested(study)})."]
    out = []
    for share, found in pairs.items():
        told = [f"{pair.ranked[0]} above {pair.ranked[1]}" for pair in found if pair.different]
        rest = [f"{pair.a} and {pair.b}" for pair in found if not pair.different]
        parts = ([", ".join(told)] if told else []) + ([f"not told apart: {', '.join(rest)}"] if rest else [])
        out.append(f"At {share:.0%} of {study.budget.words}: {'; '.join(parts)}.")
    return [*out, f"(Paired bootstrap over test pictures with the seeds' spread, Holm over all {count} pairs of this study.)"]


def _overlap(first: PowerLaw, second: PowerLaw) -> bool:
    return max(min(first.sizes), min(second.sizes)) < min(max(first.sizes), max(second.sizes))


# ---- both ----------------------------------------------------------------------------------------------------------------------


def _tables(done: Conducted, place: str, titles: dict[Any, str]) -> list[Table]:
    """A table for each size, or each share of the budget; what the models are stands once, under the last one."""
    found = {contender.name: done.of(contender.name) for contender in done.study.contenders if done.of(contender.name)}
    tables = [
        Table(
            tuple(
                row(own, done.interval(own) if done.study.claim == "significance" else None)
                for cells in found.values()
                if (own := [cell for cell in cells if getattr(cell, place) == at])
            ),
            title,
        )
        for at, title in titles.items()
    ]
    notes = tuple(f"{contender.name}: {contender.note}" for contender in done.study.contenders if contender.name in found)
    return [*tables[:-1], dataclasses.replace(tables[-1], notes=notes)]


def _finish(
    done: Conducted,
    tables: list[Table],
    fits: dict[str, PowerLaw],
    crossings: dict[str, Crossing],
    pairs: list[dict[str, Any]],
    conclusion: str,
    figures: list[str],
) -> Result:
    values = {
        **common_values(done),
        "rows": [dataclasses.asdict(entry) for table in tables for entry in table.rows],
        "fits": {name: fit.to_dict() for name, fit in fits.items()},
        "crossings": {name: found.to_dict() for name, found in crossings.items()},
        "pairs": pairs,
        "conclusion": conclusion,
        "figures": figures,
    }
    return finish(done.folder, lambda markdown: "\n".join(table.text(markdown) for table in tables), values)
