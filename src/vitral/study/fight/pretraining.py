"""Does pre-training decide? Accuracy on one data set against the number of images of another that were learnt before.

The first study trains each model on nested subsets of the other data, with labels; the second starts from each of these weights, once
fine-tuned wholly and once as frozen features under a linear probe of a few images a class. Beside them the same models from scratch.

OUT/study.json, cells/, result.json …: the second study; OUT/pretraining/: the first, whose cells hold the weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import FailedError, UsageError
from vitral.base.layout import CELLS, PRETRAINING
from vitral.base.text import percent
from vitral.config import DataConfig, TrainConfig
from vitral.cost.flops import forward_flops
from vitral.data.splits.open import open_data
from vitral.study.fight import plots
from vitral.study.fight.conclude import Pair, how_tested
from vitral.study.fight.conduct import Conducted, check_folder, conduct, declare, settling_remarks
from vitral.study.fight.contenders import make_contenders, tuning_lrs
from vitral.study.fight.forecast import Forecast, forecast, together
from vitral.study.fight.growth import (
    GapChange,
    bent_remarks,
    finish_growth,
    gap_changes,
    gaps,
    pairs_at,
    power_laws,
    remarks,
    tables_at,
    thin_remarks,
    told_apart,
)
from vitral.study.fight.pool import Pool, Work
from vitral.study.fight.protocol import Budget, Contender, Study, start_key
from vitral.study.fight.recipe import Recipe
from vitral.study.fight.result import Result
from vitral.study.fight.statistics import Crossing, PowerLaw
from vitral.study.fight.table import Table
from vitral.study.fight.train_cell import train_cell

MODELS = ("vit", "resnet18", "hybrid")
SHARES = (0.02, 0.05, 0.1, 0.3, 1.0)
SHOTS = 10
REACH = 3.0
"""Lines are carried on by no more than this factor beyond what was measured."""
SCRATCH = "from scratch"


@dataclass(frozen=True)
class Pretraining:
    """The two studies, as declared before anything is trained."""

    first: Study
    """On the other data: a cell for each model, number of images and seed."""
    second: Study
    """On the data in question; where its cells start from is known when the first is done."""


def study_pretraining(
    data: DataConfig,
    source: DataConfig,
    budget: Budget,
    transfer: Budget,
    *,
    models: Sequence[str] | None = None,
    sizes: Sequence[float] | None = None,
    seeds: int = 3,
    shots: int = SHOTS,
    train: TrainConfig | None = None,
    lrs: Sequence[float] | None = None,
    tuning_share: float = 0.25,
    image_size: int | tuple[int, int] | None = None,
    recipes: Mapping[str, dict[str, Any]] | None = None,
) -> Pretraining:
    """The protocol. `budget` is one pre-training's, `transfer` one fine-tuning's; `sizes` are shares or numbers of the source's images."""
    if recipes is not None and len(recipes) > 1:
        raise UsageError("a study of pre-training takes one recipe", "use --recipe plain or --recipe strong")
    opened = open_data(data, image_size=image_size)
    opened.require_single_label("an accuracy against pre-training")
    other = open_data(source, image_size=opened.image_size, channels=opened.channels)
    whole, classes = len(other.train), len(other.class_names)
    fewest = int(opened.train.counts().min())
    if not 0 <= shots <= fewest:
        raise UsageError(f"{shots} shots asked for, the smallest class of {opened.name} has {fewest} pictures", f"use up to {fewest}")
    train = train or Recipe().train_config()
    shared: dict[str, Any] = {"seeds": tuple(range(seeds)), "train": train, "tuning_share": tuning_share}
    shared["claim"] = "significance" if seeds > 1 else "none"
    named, counts = models or MODELS, numbers_of(sizes or SHARES, whole, classes)
    learners = make_contenders(named, other, lrs=lrs, recipes=recipes)
    first = Study(kind="data", data=source, contenders=learners, budget=budget, images=whole, sizes=counts, **shared)
    to_come = {start_key(size, seed): "" for size in counts for seed in first.seeds}
    second = Study(
        kind="pretraining",
        data=data,
        contenders=(
            *(_transferred(contender, len(opened.class_names), source.name, to_come, lrs) for contender in learners),
            *(_scratch(contender) for contender in make_contenders(named, opened, lrs=lrs, recipes=recipes)),
        ),
        budget=transfer,
        images=len(opened.train),
        pretrained=counts,
        shots=shots,
        **shared,
    )
    return Pretraining(first, second)


def numbers_of(sizes: Sequence[float], whole: int, classes: int) -> tuple[int, ...]:
    """Shares up to 1, or numbers of images, as numbers; never fewer than there are classes to teach."""
    if (wrong := next((size for size in sizes if not 0 < size <= whole), None)) is not None:
        raise UsageError(
            f"a size of {wrong:g} is neither a share up to 1 nor a number of the {whole:,} training pictures",
            "use for example --sizes 0.1,0.3,1",
        )
    return tuple(sorted({min(whole, max(classes, round(size * whole) if size <= 1 else round(size))) for size in sizes}))


def _transferred(contender: Contender, classes: int, source: str, begun: dict[str, str], lrs: Sequence[float] | None) -> Contender:
    """The same model, which starts from what it learnt before: with that start no other is to be chosen."""
    model = dataclasses.replace(contender.model, classes=classes)
    grid = contender.lrs if lrs is not None else tuning_lrs(contender.settings.get("optimizer", "adamw"), "all")
    note = f"{contender.note}, pre-trained on {source}"
    return dataclasses.replace(contender, model=model, flops=forward_flops(model), lrs=grid, starts=(), note=note, begun=begun)


def _scratch(contender: Contender) -> Contender:
    return dataclasses.replace(contender, name=f"{contender.name} {SCRATCH}", note=f"{contender.note}, {SCRATCH}")


def check_folders(declared: Pretraining, out: str | Path) -> None:
    """Refuse a folder that holds anything but these two studies."""
    check_folder(declared.second, out)
    check_folder(declared.first, Path(out) / PRETRAINING)


def forecast_pretraining(declared: Pretraining, out: str | Path, parallel: int = 1, quiet: bool = False) -> Forecast:
    """Of both studies; what is finished in `out` is left out."""
    first = forecast(declared.first, parallel, quiet, Path(out) / PRETRAINING)
    return together({"pre-training ": first, "": forecast(declared.second, parallel, quiet, out)})


def run_pretraining(declared: Pretraining, out: str | Path, pool: Pool | None = None, work: Work = train_cell) -> Result:
    """Run both studies, or go on with them."""
    folder = declare(declared.second, out)
    learnt = conduct(declared.first, folder / PRETRAINING, pool, work, description="Pre-training")
    second = beginning_from(declared.second, learnt)
    return _finish(learnt, conduct(second, folder, pool, work, declared=declared.second))


def beginning_from(second: Study, learnt: Conducted) -> Study:
    """The second study with the cells that the first has finished; one that failed is missing, and so is what would start from it."""
    where = {
        contender.name: {start_key(cell.size, cell.seed): f"../{PRETRAINING}/{CELLS}/{cell.cell}" for cell in learnt.of(contender.name)}
        for contender in learnt.study.contenders
    }
    if none := next((name for name, found in where.items() if not found), None):
        raise FailedError(f"no pre-training of {none} was finished", next(iter(learnt.failed.values()), ""))
    contenders = (dataclasses.replace(contender, begun=where.get(contender.name, {})) for contender in second.contenders)
    return dataclasses.replace(second, contenders=tuple(contenders))


# ---- what came out -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One way of using what was learnt before: fine-tuned, or a probe of the frozen features."""

    name: str
    done: Conducted
    """Its cells alone."""
    fits: dict[str, PowerLaw]
    crossings: dict[str, Crossing]
    pairs: dict[int, list[Pair]]
    changes: list[GapChange]


def _finish(learnt: Conducted, done: Conducted) -> Result:
    study, source = done.study, learnt.study.data.name
    names = {shots: way_name(shots) for shots in dict.fromkeys((0, study.shots))}
    tests, gains, changes = _tests(done, names)
    ways = [_way(name, done, shots, tests[shots], changes[shots]) for shots, name in names.items()]
    levels = {name.removesuffix(f" {SCRATCH}"): float(np.mean([cell.accuracy for cell in done.of(name)])) for name in _scratches(done)}
    own, tables, figures = _own_tables(learnt), [], []
    for way, shots in zip(ways, names, strict=True):
        titles = {size: f"{way.name}, {f'{size:,} pictures of {source} before' if size else SCRATCH}" for size in (0, *study.pretrained)}
        tables += [table for table in tables_at(way.done, "pretrained", titles) if table.rows]
        by_model = {contender.name: cells for contender in study.contenders if contender.begun and (cells := way.done.of(contender.name))}
        title = f"{study.data.name}, {way.name}; pre-trained on {source}, {learnt.study.budget.words}"
        shown = {"place": "pretrained", "levels": levels if not shots else None, "name": "shots" if shots else "pretraining"}
        figures += plots.draw_data(way.done, by_model, way.fits, way.crossings, title, **shown)  # type: ignore[arg-type]
    pairs = [
        {**pair.to_dict(), "pretrained": size, "shots": shots}
        for way, shots in zip(ways, names, strict=True)
        for size, found in way.pairs.items()
        for pair in found
    ]
    pairs += [{**pair.to_dict(), "pretrained": study.pretrained[-1], "shots": 0} for pair in gains]
    key = lambda way, name: f"{way.name}: {name}"  # noqa: E731
    return finish_growth(
        done,
        tables,
        {key(way, name): fit for way in ways for name, fit in way.fits.items()},
        {key(way, name): found for way in ways for name, found in way.crossings.items()},
        pairs,
        conclude_pretraining(learnt, done, ways, levels, gains),
        figures,
        own,
        source=source,
        learnt=[dataclasses.asdict(entry) for table in own for entry in table.rows],
        pretraining_budget=str(learnt.study.budget),
        gaps=[{"way": way.name, **change.to_dict()} for way in ways for change in way.changes],
    )


def _own_tables(learnt: Conducted) -> list[Table]:
    """What the models had learnt of the other data, by its own test images."""
    titles = {size: f"before: {learnt.study.data.name} itself, {size:,} pictures" for size in learnt.study.sizes}
    return [dataclasses.replace(table, notes=()) for table in tables_at(learnt, "size", titles) if table.rows]


def _scratches(done: Conducted) -> list[str]:
    return [contender.name for contender in done.study.contenders if not contender.begun and done.of(contender.name)]


def way_name(shots: int) -> str:
    return f"linear probe of {shots} a class" if shots else "fine-tuned"


def _tests(done: Conducted, shots: Collection[int]) -> tuple[dict[int, dict[int, list[Pair]]], list[Pair], dict[int, list[GapChange]]]:
    """Models by shots and size; each model after the most pictures against itself from scratch; by shots, whether gaps change from the
    fewest pictures to the most. All are counted together."""
    places = {(way, size): done.correct(shots=way, pretrained=size) for way in shots for size in (0, *done.study.pretrained)}
    few, most = done.study.pretrained[0], done.study.pretrained[-1]
    against = against_scratch(places[0, most], places[0, 0])
    groups: dict[Any, Mapping[str, np.ndarray]] = {**places, **against}
    for way in shots if few != most else ():
        groups |= gaps(places[way, few], places[way, most], way_name(way))
    found = pairs_at(done, groups)
    tests = {way: {size: found[way, size] for size in (0, *done.study.pretrained) if places[way, size]} for way in shots}
    return tests, [pair for name in against for pair in found[name]], {way: gap_changes(found, way_name(way)) for way in shots}


def against_scratch(most: Mapping[str, np.ndarray], scratch: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Each model after the most pictures beside itself from scratch, fine-tuned both."""
    return {name: {name: right, own: scratch[own]} for name, right in most.items() if (own := f"{name} {SCRATCH}") in scratch}


def _way(name: str, done: Conducted, shots: int, pairs: dict[int, list[Pair]], changes: list[GapChange]) -> Way:
    own = dataclasses.replace(done, outcomes=tuple(outcome for outcome in done.outcomes if outcome.shots == shots))
    models = {contender.name: own.of(contender.name) for contender in done.study.contenders if contender.begun}
    return Way(name, own, *power_laws(models, "pretrained", done.right, REACH), pairs, changes)


def conclude_pretraining(
    learnt: Conducted, done: Conducted, ways: Sequence[Way], levels: Mapping[str, float], gains: Sequence[Pair]
) -> str:
    """In words that the intervals carry: who leads where, whether the gap closes, where the lines would cross."""
    study, source = done.study, learnt.study.data.name
    few, most = study.pretrained[0], study.pretrained[-1]
    sentences = []
    for way in ways:
        ends = [(size, way.pairs[size]) for size in (few, most) if way.pairs.get(size)]
        for size, pairs in ends:
            sentences.append(f"{way.name.capitalize()} after {size:,} pictures of {source}: {told_apart(pairs)}.")
        if not ends:
            sentences.append(f"{way.name.capitalize()}: no order is claimed, no test was made.")
        sentences += [f"From {few:,} to {most:,} pictures {change}." for change in way.changes]
        sentences += [f"{pair}, {way.name}: {found}." for pair, found in way.crossings.items()]
        sentences += [f"The error of {name}, {way.name}, {fit}." for name, fit in way.fits.items()]
        sentences += [*bent_remarks(way.fits), *thin_remarks(way.fits)]
    if levels:
        listed = ", ".join(f"{name} {percent(level)}" for name, level in levels.items())
        sentences.append(f"From scratch, fine-tuning's budget alone: {listed}.")
    if gains:
        sentences.append(f"Fine-tuned after {most:,} pictures, against itself from scratch: {told_apart(gains)}.")
    sentences += how_tested(len(gains) + sum(len(way.changes) + sum(map(len, way.pairs.values())) for way in ways))
    sentences += remarks(done)
    sentences += [f"Of the pre-training: {remark}" for remark in settling_remarks(learnt)]
    if learnt.failed:
        sentences.append(f"{len(learnt.failed)} pre-trainings failed, and what would have started from them is missing.")
    sentences.append(
        f"This holds for {study.data.name} after {source}, {learnt.study.budget.words} of pre-training at every size and "
        f"{study.budget.words} of fine-tuning; beyond {REACH:g} times {most:,} pictures nothing is said."
    )
    return " ".join(sentences)
