"""The scaling lab: accuracy against data, accuracy against compute. (Cost against tokens: `token_cost.py`; pre-training: `pretraining.py`.)

Data: nested class-balanced subsets × models × seeds, each run with the same number of samples and the same recipe (no extra
regularisation on small subsets), a power law for each model, and where the lines cross. Compute: several sizes of each family,
trained from the start at several parts of the budget, against training FLOPs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from vitral.base.errors import UsageError
from vitral.base.progress import say
from vitral.base.text import percent
from vitral.config import DataConfig, TrainConfig
from vitral.data.splits.open import open_data
from vitral.study.fight import plots
from vitral.study.fight.conclude import Pair, how_tested
from vitral.study.fight.conduct import Conducted, check_folder, conduct
from vitral.study.fight.contenders import fit_model, make_contenders
from vitral.study.fight.forecast import Forecast, expect, forecast
from vitral.study.fight.growth import (
    BENT,
    GapChange,
    bent_remarks,
    finish_growth,
    fit_cells,
    gap_changes,
    gaps,
    pairs_at,
    power_laws,
    remarks,
    step_remarks,
    tables_at,
    thin_remarks,
    told_apart,
    untested,
)
from vitral.study.fight.pool import Pool, Work
from vitral.study.fight.pretraining import SHOTS, check_folders, forecast_pretraining, numbers_of, run_pretraining, study_pretraining
from vitral.study.fight.protocol import Budget, Study
from vitral.study.fight.recipe import Recipe
from vitral.study.fight.result import Result, study_folder
from vitral.study.fight.statistics import Crossing, PowerLaw, crossing
from vitral.study.fight.table import Outcome
from vitral.study.fight.token_cost import study_cost, varied
from vitral.study.fight.train_cell import train_cell

SHARES = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0)
DATA_MODELS = ("vit-small", "vit", "cnn", "resnet18")
COMPUTE_MODELS = ("vit-small", "vit", "vit-large", "hybrid-small", "hybrid", "resnet18", "resnet50")
COMPUTE_SHARES = (0.25, 1.0)
PATCHES = (2, 4, 8, 16)


def scale(
    data: str,
    kind: Literal["data", "compute", "cost", "pretraining"] = "data",
    models: Sequence[str] | None = None,
    *,
    budget: str = "samples=50000",
    sizes: Sequence[float] | None = None,
    seeds: int = 3,
    lrs: Sequence[float] | None = None,
    tuning_share: float = 0.25,
    from_data: str | None = None,
    transfer: str = "samples=50000",
    shots: int = SHOTS,
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
      "cost": time and memory of one ViT as `patches` and `image_sizes` change; "pretraining": `models` learn from `sizes` of `from_data`
      with labels, then `data` from there: fine-tuned with the budget `transfer`, and as a linear probe of `shots` images a class.
    - budget, seeds, lrs, tuning_share, recipe: as in `compare`; "epochs=10" lets the training grow with the data.
    - max_hours: refuse what is forecast to take longer. `agree` is called with the forecast before anything is spent, and may raise.
    - out: the study's folder (runs/scale-KIND-DATA); a study in it goes on where it was stopped.

        result = vitral.study.scale("digits", models=["vit-small", "cnn"], sizes=[0.1, 0.3, 1], budget="samples=20000")
        print(result.table, result.values["crossings"])
    """
    shared = Recipe(**recipe)
    folder = study_folder(out, f"scale-{kind}", data)
    if kind == "cost":
        return _cost(shared, data, models or ("vit",), image_sizes, patches, folder)
    asked: dict[str, Any] = {"models": models, "sizes": sizes, "seeds": seeds, "lrs": lrs, "tuning_share": tuning_share}
    asked |= {"train": shared.train_config(), "image_size": shared.image_size, "recipes": shared.recipes()}
    pool = Pool(shared.cells_at_a_time(), shared.ray, shared.quiet)
    if kind == "pretraining":
        if from_data is None:
            raise UsageError("a study of pre-training needs other data to learn from first", "name it with --from-data")
        configs = shared.data_config(data), shared.data_config(from_data)
        declared = study_pretraining(*configs, Budget.parse(budget), Budget.parse(transfer), shots=shots, **asked)
        check_folders(declared, folder)  # a forecast takes minutes
        expect(lambda: forecast_pretraining(declared, folder, pool.parallel, shared.quiet), max_hours, agree)
        return run_pretraining(declared, folder, pool)
    study = scaling(kind, shared.data_config(data), Budget.parse(budget), **asked)
    check_folder(study, folder)
    expect(lambda: forecast(study, pool.parallel, shared.quiet, folder), max_hours, agree)
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
        counts = numbers_of(sizes or SHARES, whole, classes)
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
    fits, crossings = power_laws(by_model, "size", done.right)
    tables = tables_at(done, "size", {size: f"{size:,} pictures" for size in study.sizes})
    few, most = study.sizes[0], study.sizes[-1]
    right = {size: done.correct(size=size) for size in (few, most)}
    tested = pairs_at(done, {**right, **gaps(right[few], right[most])})
    ends, changes = {size: tested[size] for size in right}, gap_changes(tested)
    conclusion = conclude_data(study, fits, crossings, ends, [*remarks(done), *step_remarks(done)], changes)
    pairs = [{**pair.to_dict(), "size": size} for size, pairs in ends.items() for pair in pairs]
    figures = plots.draw_data(done, by_model, fits, crossings, f"{study.data.name}, {study.budget.words} for each size")
    return finish_growth(done, tables, fits, crossings, pairs, conclusion, figures, gaps=[change.to_dict() for change in changes])


def conclude_data(
    study: Study,
    fits: dict[str, PowerLaw],
    crossings: dict[str, Crossing],
    ends: dict[int, list[Pair]],
    remarks: Sequence[str] = (),
    changes: Sequence[GapChange] = (),
) -> str:
    sentences = []
    for size, pairs in ends.items():
        sentences.append(f"With {size:,} training pictures: {told_apart(pairs) or f'no test was made ({untested(study)})'}.")
    sentences += [f"From {study.sizes[0]:,} to {study.sizes[-1]:,} pictures {change}." for change in changes]
    sentences += how_tested(len(changes) + sum(map(len, ends.values())))
    sentences += [f"{pair}: {found}." for pair, found in crossings.items()]
    sentences += [f"The error of {name} {fit}." for name, fit in fits.items()]
    sentences += [*bent_remarks(fits), *thin_remarks(fits), *remarks]
    sentences.append(
        f"This holds for {study.data.name}, the same {study.budget.words} at every size, and no extra regularisation on small subsets; "
        f"beyond {study.sizes[-1]:,} pictures it is extrapolation."
    )
    return " ".join(sentences)


# ---- compute -------------------------------------------------------------------------------------------------------------------


def _compute(done: Conducted) -> Result:
    study = done.study
    families: dict[str, list[Outcome]] = {}
    for contender in study.contenders:
        family = "resnet" if contender.family.startswith("resnet") else contender.family
        families.setdefault(family, []).extend(done.of(contender.name))
    families = {name: cells for name, cells in families.items() if cells}
    fits = {name: fit for name, cells in families.items() if (fit := fit_cells(cells, "training_flops", done.right)) is not None}
    bent = [name for name, fit in fits.items() if fit.residual > BENT]
    crossings = {
        f"{a} and {b}": crossing(fits[a], fits[b])
        for a, b in combinations(fits, 2)
        # Families are measured at different FLOPs, so no measured means can confirm a crossing: both fits must hold by themselves.
        if _overlap(fits[a], fits[b]) and a not in bent and b not in bent
    }
    tables = tables_at(done, "share", {share: f"{percent(share, 0)} of {study.budget.words}" for share in study.shares})
    lines = [f"The error of the family {name} {fit}, n being training FLOPs." for name, fit in fits.items() if name not in bent]
    lines += [f"The families {pair}: {found} training FLOPs." for pair, found in crossings.items()]
    lines += thin_remarks(fits)
    if bent:
        worst = 2 ** max(fits[name].residual for name in bent)
        lines.append(
            f"The points of the {'families' if len(bent) > 1 else 'family'} {', '.join(bent)} do not lie on one power law "
            f"(off by up to {worst:.1f} times): "
            "size and length of training do not trade evenly there, so no exponent and no crossing is claimed."
        )
    pairs = pairs_at(done, {share: done.correct(share=share) for share in study.shares})
    lines += _order(pairs, study)
    lines += remarks(done)
    lines.append(f"This holds for {study.data.name} and runs of up to {study.budget.words}; training counts as three forward passes.")
    figures = plots.draw_compute(done, families, f"{study.data.name}, up to {study.budget.words}")
    tested = [{**pair.to_dict(), "share": share} for share, found in pairs.items() for pair in found]
    return finish_growth(done, tables, fits, crossings, tested, " ".join(lines), figures)


def _order(pairs: dict[float, list[Pair]], study: Study) -> list[str]:
    """What may be said of who is above whom: only what a test tells, at the same part of the budget."""
    count = sum(map(len, pairs.values()))
    if not count:
        return [f"No order of the models is claimed: no test was made ({untested(study)})."]
    out = []
    for share, found in pairs.items():
        out.append(f"At {percent(share, 0)} of {study.budget.words}: {told_apart(found)}.")
    return [*out, *how_tested(count)]


def _overlap(first: PowerLaw, second: PowerLaw) -> bool:
    return max(min(first.sizes), min(second.sizes)) < min(max(first.sizes), max(second.sizes))
