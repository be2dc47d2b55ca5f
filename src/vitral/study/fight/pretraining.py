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
from typing import Any, NamedTuple

import numpy as np

from vitral.base.errors import FailedError, UsageError
from vitral.base.layout import CELLS, PRETRAINING
from vitral.base.text import percent
from vitral.config import DataConfig
from vitral.cost.flops import forward_flops
from vitral.data.splits.open import open_data
from vitral.study.fight import plots
from vitral.study.fight.compare import Terms
from vitral.study.fight.conclude import finish_growth, how_tested, remarks, settling_remarks
from vitral.study.fight.conduct import Conducted, conduct, train_cell
from vitral.study.fight.contenders import make_contenders, templates, tuning_lrs
from vitral.study.fight.experiment import Budget, Contender, Experiment, Source
from vitral.study.fight.folder import Result, check_folder, declare
from vitral.study.fight.forecast import Forecast, forecast, together
from vitral.study.fight.growth import (
    GapChange,
    bent_remarks,
    difference_text,
    gap_changes,
    gaps,
    pairs_at,
    power_laws,
    tables_at,
    thin_remarks,
)
from vitral.study.fight.pool import Pool, Work
from vitral.study.fight.statistics import Crossing, Pair, PowerLaw
from vitral.study.fight.table import Table

REACH = 3.0
"""Lines are carried on by no more than this factor beyond what was measured."""
_MODELS = ("vit", "resnet18", "hybrid")
_SHARES = (0.02, 0.05, 0.1, 0.3, 1.0)
_SCRATCH = "from scratch"


class Pretraining(NamedTuple):
    """The two experiments, as declared before anything is trained."""

    first: Experiment
    """On the other data: a cell for each model, number of images and seed."""
    second: Experiment
    """On the data in question; the folders that its cells start from are filled in when the first is done."""


def study_pretraining(
    data: str,
    models: Sequence[str] | None = None,
    *,
    from_data: str | None = None,
    sizes: Sequence[float] | None = None,
    transfer: str = "samples=50000",
    shots: int = 10,
    **options: Any,
) -> Pretraining:
    """`budget` of the options is one pre-training's, `transfer` one fine-tuning's; `sizes` are shares or numbers of the images of
    `from_data`."""
    if from_data is None:
        raise UsageError("a study of pre-training needs other data to learn from first", "name it with --from-data")
    terms, settings = Terms.split(options)
    budget, tuned = Budget.parse(terms.budget), Budget.parse(transfer)
    recipes, before = (templates(name, terms.recipe, **settings) for name in (data, from_data))
    if len(recipes) > 1:
        raise UsageError("a study of pre-training takes one recipe", "use --recipe plain or --recipe strong")
    (own,), (other,) = ([run.data for run in each.values()] for each in (recipes, before))
    opened = open_data(own, image_size=terms.image_size)
    opened.require_single_label("an accuracy against pre-training")
    source = open_data(other, image_size=opened.image_size, channels=opened.channels)
    whole, classes = len(source.train), len(opened.class_names)
    fewest = int(opened.train.counts().min())
    if not 0 <= shots <= fewest:
        raise UsageError(f"{shots} shots asked for, the smallest class of {opened.name} has {fewest} pictures", f"use up to {fewest}")
    names, counts = models or _MODELS, numbers_of(sizes or _SHARES, whole, len(source.class_names))
    learners = make_contenders(names, source, before, lrs=terms.lrs)
    first = Experiment("data", learners, budget, whole, sizes=counts, **terms.held_equal())
    to_come = tuple(Source(size, seed) for size in counts for seed in first.seeds)
    transferred = (dataclasses.replace(_transferred(contender, own, classes, terms.lrs), pretrained_from=to_come) for contender in learners)
    scratch = (_scratch(contender) for contender in make_contenders(names, opened, recipes, lrs=terms.lrs))
    second = Experiment(
        "pretraining", (*transferred, *scratch), tuned, len(opened.train), pretrained=counts, shots=shots, **terms.held_equal()
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


def _transferred(contender: Contender, data: DataConfig, classes: int, lrs: Sequence[float] | None) -> Contender:
    """The same model on `data`, which starts from what it learnt before: with that start no other is to be chosen."""
    before, model = contender.run.data.name, dataclasses.replace(contender.run.model, classes=classes)
    return dataclasses.replace(
        contender,
        run=dataclasses.replace(contender.run, model=model, data=data),
        flops=forward_flops(model),
        lrs=contender.lrs if lrs is not None else tuning_lrs(contender.run.train.optimizer, "all"),
        starts=(),
        note=f"{contender.note}, pre-trained on {before}",
    )


def _scratch(contender: Contender) -> Contender:
    return dataclasses.replace(contender, name=f"{contender.name} {_SCRATCH}", note=f"{contender.note}, {_SCRATCH}")


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
    second = start_from(declared.second, learnt)
    return _finish(learnt, conduct(second, folder, pool, work, declared=declared.second))


def start_from(second: Experiment, learnt: Conducted) -> Experiment:
    """The second experiment with the cells that the first has finished; one that failed is missing, and so is what would start from it."""
    sources = {
        contender.name: tuple(Source(cell.size, cell.seed, f"../{PRETRAINING}/{CELLS}/{cell.cell}") for cell in learnt.of(contender.name))
        for contender in learnt.study.contenders
    }
    if none := next((name for name, own in sources.items() if not own), None):
        raise FailedError(f"no pre-training of {none} was finished", next(iter(learnt.failed.values()), ""))
    contenders = (dataclasses.replace(contender, pretrained_from=sources.get(contender.name, ())) for contender in second.contenders)
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
    levels = {name.removesuffix(f" {_SCRATCH}"): float(np.mean([cell.accuracy for cell in done.of(name)])) for name in _scratches(done)}
    own, tables, figures = _own_tables(learnt), [], []
    for way, shots in zip(ways, names, strict=True):
        titles = {size: f"{way.name}, {f'{size:,} pictures of {source} before' if size else _SCRATCH}" for size in (0, *study.pretrained)}
        tables += [table for table in tables_at(way.done, "pretrained", titles) if table.rows]
        by_model = {
            contender.name: cells for contender in study.contenders if contender.pretrained_from and (cells := way.done.of(contender.name))
        }
        title = f"{study.data.name}, {way.name}; pre-trained on {source}, {learnt.study.budget.words}"
        shown = {"axis": "pretrained", "levels": levels if not shots else None, "name": "shots" if shots else "pretraining"}
        figures += plots.draw_data(way.done, by_model, way.fits, way.crossings, title, **shown)  # type: ignore[arg-type]
    pairs = [
        {**pair.to_dict(), "pretrained": size, "shots": shots}
        for way, shots in zip(ways, names, strict=True)
        for size, tested in way.pairs.items()
        for pair in tested
    ]
    pairs += [{**pair.to_dict(), "pretrained": study.pretrained[-1], "shots": 0} for pair in gains]
    key = lambda way, name: f"{way.name}: {name}"  # noqa: E731
    return finish_growth(
        done,
        tables,
        {key(way, name): fit for way in ways for name, fit in way.fits.items()},
        {key(way, name): crossing for way in ways for name, crossing in way.crossings.items()},
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
    return [contender.name for contender in done.study.contenders if not contender.pretrained_from and done.of(contender.name)]


def way_name(shots: int) -> str:
    return f"linear probe of {shots} a class" if shots else "fine-tuned"


def _tests(done: Conducted, shots: Collection[int]) -> tuple[dict[int, dict[int, list[Pair]]], list[Pair], dict[int, list[GapChange]]]:
    """Models by shots and size; each model after the most pictures against itself from scratch; by shots, whether gaps change from the
    fewest pictures to the most. All are counted together."""
    correct = {(way, size): done.correct(shots=way, pretrained=size) for way in shots for size in (0, *done.study.pretrained)}
    few, most = done.study.pretrained[0], done.study.pretrained[-1]
    against = against_scratch(correct[0, most], correct[0, 0])
    groups: dict[Any, Mapping[str, np.ndarray]] = {**correct, **against}
    for way in shots if few != most else ():
        groups |= gaps(correct[way, few], correct[way, most], way_name(way))
    tested = pairs_at(done, groups)
    tests = {way: {size: tested[way, size] for size in (0, *done.study.pretrained) if correct[way, size]} for way in shots}
    return tests, [pair for name in against for pair in tested[name]], {way: gap_changes(tested, way_name(way)) for way in shots}


def against_scratch(most: Mapping[str, np.ndarray], scratch: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Each model after the most pictures beside itself from scratch, fine-tuned both."""
    return {name: {name: right, own: scratch[own]} for name, right in most.items() if (own := f"{name} {_SCRATCH}") in scratch}


def _way(name: str, done: Conducted, shots: int, pairs: dict[int, list[Pair]], changes: list[GapChange]) -> Way:
    own = dataclasses.replace(done, outcomes=tuple(outcome for outcome in done.outcomes if outcome.shots == shots))
    models = {contender.name: own.of(contender.name) for contender in done.study.contenders if contender.pretrained_from}
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
            sentences.append(f"{way.name.capitalize()} after {size:,} pictures of {source}: {difference_text(pairs)}.")
        if not ends:
            sentences.append(f"{way.name.capitalize()}: no order is claimed, no test was made.")
        sentences += [f"From {few:,} to {most:,} pictures {change}." for change in way.changes]
        sentences += [f"{pair}, {way.name}: {crossing}." for pair, crossing in way.crossings.items()]
        sentences += [f"The error of {name}, {way.name}, {fit}." for name, fit in way.fits.items()]
        sentences += [*bent_remarks(way.fits), *thin_remarks(way.fits)]
    if levels:
        listed = ", ".join(f"{name} {percent(level)}" for name, level in levels.items())
        sentences.append(f"From scratch, fine-tuning's budget alone: {listed}.")
    if gains:
        sentences.append(f"Fine-tuned after {most:,} pictures, against itself from scratch: {difference_text(gains)}.")
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
