"""What a study shows, what it leaves open, and what it cannot say: tests, tables, figures and one honest paragraph for each kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from vitral.base.device import describe_machine
from vitral.base.layout import CELLS
from vitral.base.text import percent
from vitral.run.folder import RunFolder
from vitral.study.fight import plots
from vitral.study.fight.conduct import Conducted
from vitral.study.fight.contenders import RECIPES, has_batch_norm
from vitral.study.fight.experiment import Experiment
from vitral.study.fight.folder import Result, finish
from vitral.study.fight.growth import (
    BENT,
    GapChange,
    bent_remarks,
    difference_text,
    fit_cells,
    gap_changes,
    gaps,
    pairs_at,
    power_laws,
    step_remarks,
    tables_at,
    thin_remarks,
    untested,
)
from vitral.study.fight.statistics import Crossing, Pair, PowerLaw, compare_pairs, crossing
from vitral.study.fight.table import Outcome, Row, Table, row

_SETTLED = 100
"""Optimizer steps after which a batch norm's running statistics (momentum 0.1) have forgotten their start and followed the weights.
Digits, cnn, 16 steps: 24 %; the same weights with settled statistics: 96 %."""
_RECIPE = ("batch_size", "weight_decay", "layer_decay", *dict.fromkeys(name for recipe in RECIPES.values() for name in recipe))
"""Settings of the recipe in result.json."""


def conclude(done: Conducted, shared: int = 1) -> Result:
    """The result of a study whose cells have run, also in its folder: tables, tests, figures and conclusion.

    `shared`: cells that ran side by side.
    """
    if done.study.kind == "compare":
        return _conclude_comparison(done, shared)
    return _conclude_data(done) if done.study.kind == "data" else _conclude_compute(done)


def _common_values(done: Conducted) -> dict[str, Any]:
    """The part of result.json that every kind of study has."""
    study = done.study
    return {
        "kind": study.kind,
        "data": study.data.name,
        "budget": str(study.budget),
        "seeds": list(study.seeds),
        "recipe": _recipe(study),
        "models": {contender.name: contender.note for contender in study.contenders},
        "tuning": done.tuning.entries,
        "tuning_share": study.tuning_share,
        "retried": done.retried,
        "failed": done.failed,
        "cells": [dataclasses.asdict(outcome) for outcome in done.outcomes],
        "machine": describe_machine(),
    }


def _recipe(study: Experiment) -> dict[str, Any]:
    """How all contenders were trained; `each`: the settings in which they differ."""
    runs = {one.name: dataclasses.asdict(one.run.data) | dataclasses.asdict(one.run.train) for one in study.contenders}
    first = next(iter(runs.values()))
    differing = [name for name in first if name != "epochs" and any(run[name] != first[name] for run in runs.values())]
    each = {name: {key: run[key] for key in differing} for name, run in runs.items()}
    return {name: first[name] for name in _RECIPE if name not in differing} | ({"each": each} if differing else {})


def how_tested(tests: int) -> list[str]:
    """How many tests a page shows, and that they were counted together."""
    if not tests:
        return []
    number = "one test" if tests == 1 else f"all {tests} tests"
    return [f"(Paired bootstrap over test pictures with the seeds' spread, Holm over {number} of this study.)"]


def missing(failed: int) -> str:
    return f"{failed} cell{'s' if failed > 1 else ''} failed and {'are' if failed > 1 else 'is'} missing."


def copy_remarks(done: Conducted) -> list[str]:
    """What every cell's accuracy is worth less by: test pictures that were learnt."""
    described = RunFolder(done.folder / CELLS / done.outcomes[0].cell).environment.get("data", {})
    count = described.get("copies", {}).get("test", 0)
    if not count:
        return []
    return [f"{count:,} test pictures are copies of training pictures (vitral data check {done.study.data.name} shows them)."]


def settling_remarks(done: Conducted) -> list[str]:
    """Which models were judged by batch statistics that had too few steps to settle. Those that start from weights bring theirs along."""
    named = []
    for contender in done.study.contenders:
        tuned = [trial for trial in done.tuning.trials if trial.model == contender.name]
        runs = {"final runs": done.of(contender.name), "tuning": tuned}
        fewest = {where: min(map(done.steps, cells)) for where, cells in runs.items() if cells}
        short = [f"{steps} optimizer step{'s' * (steps != 1)} in {where}" for where, steps in fewest.items() if steps < _SETTLED]
        if short and contender.run.weights is None and not contender.pretrained_from and has_batch_norm(contender.run.model):
            named.append(f"{contender.name} ({', '.join(short)})")
    if not named:
        return []
    return [
        f"Batch statistics may not have settled in {', '.join(named)}: {'its' if len(named) == 1 else 'their'} accuracy may be "
        "far too low; use a larger budget or a smaller batch."
    ]


# ---- compare ------------------------------------------------------------------------------------------------------------------------


def _conclude_comparison(done: Conducted, shared: int) -> Result:
    study, claim = done.study, done.study.claim == "significance"
    finished = [contender for contender in study.contenders if done.of(contender.name)]
    table = Table(
        tuple(row(cells := done.of(contender.name), done.interval(cells) if claim else None, contender.note) for contender in finished),
        f"{study.data.name} at {study.budget.words}",
        tuple(f"{contender.name}: {contender.note}" for contender in finished),
    )
    correct = done.correct()
    enough = claim and len(correct) > 1 and min(map(len, correct.values())) > 1
    pairs = compare_pairs({"": correct})[""] if enough else []
    noted = [*_best_recipes(done), *missing_reference(done), *done.tuning.remarks(), *settling_remarks(done), *copy_remarks(done)]
    conclusion = comparison_text(study, table.rows, pairs, noted, len(done.failed), shared)
    values = {
        **_common_values(done),
        "rows": [dataclasses.asdict(entry) for entry in table.rows],
        "pairs": [pair.to_dict() for pair in pairs],
        "conclusion": conclusion,
        "figures": plots.draw_compare(done, table),
    }
    return finish(done.folder, table.text, values)


def comparison_text(
    study: Experiment, rows: Sequence[Row], pairs: Sequence[Pair], remarks: Sequence[str] = (), failed: int = 0, shared: int = 1
) -> str:
    """What can and what cannot be concluded. `remarks` are on the tuning and the length of the runs; `shared`: cells side by side."""
    data, budget = study.data.name, study.budget.words
    best = max(rows, key=lambda row: row.mean)
    sentences = []
    if len(rows) == 1:
        sentences.append(f"{best.model} reaches {percent(best.mean)} on {data} at {budget}; there is one model: nothing can be compared.")
    elif not pairs:
        tested = "some model has one seed" if study.claim == "significance" else "no test was asked for"
        why = tested if any(row.seeds > 1 for row in rows) else "each model has one seed"
        sentences.append(
            f"{best.model} has the highest accuracy on {data} at {budget} ({percent(best.mean)}), but {why}: "
            "nothing can be concluded about a difference between models."
        )
    else:
        seeds = min(row.seeds for row in rows)
        tests = f"{len(pairs)} pair{'s' if len(pairs) > 1 else ''}, {pairs[0].pictures:,} test pictures, {seeds} seeds each"
        sentences += [*_significant(pairs), *_not_significant(pairs)]
        sentences.append(f"(Paired bootstrap over test pictures with the seeds' spread, Holm over {tests}.)")
    if agreed := [row.model for row in rows if len(set(row.accuracies)) == 1 and row.interval]:
        sentences.append(f"All seeds of {', '.join(agreed)} are equally right: their interval is that of the pictures alone.")
    sentences += remarks
    if failed:
        sentences.append(missing(failed))
    if shared > 1 and study.budget.kind == "seconds":
        sentences.append(f"Up to {shared} cells shared the device, so a second here is less than a second alone; it is so for every model.")
    finished = {row.model for row in rows}
    starts_from_weights = any(contender.run.weights for contender in study.contenders if contender.name in finished)
    other = "other weights to start from" if starts_from_weights else "pretrained weights"
    sentences.append(
        f"This holds for {data}, {budget} and these settings; it says nothing about more data, longer training, other recipes or {other}."
    )
    return " ".join(sentences)


def _significant(pairs: Sequence[Pair]) -> list[str]:
    out = []
    for pair in pairs:
        if pair.different:
            low, high = sorted(abs(end) * 100 for end in pair.interval)
            points = f"{abs(pair.difference) * 100:.2f} points ({low:.2f} to {high:.2f}, {pair.p_text})"
            out.append(f"{pair.ranked[0]} is better than {pair.ranked[1]} by {points}.")
    return out


def _not_significant(pairs: Sequence[Pair]) -> list[str]:
    equal = [pair for pair in pairs if not pair.different]
    if not equal:
        return []
    listed = ", ".join(f"{pair.a} and {pair.b} ({pair.difference * 100:+.2f} points, {pair.p_text})" for pair in equal)
    return [f"Not told apart: {listed}; that is no proof that they are equal."]


def missing_reference(done: Conducted) -> list[str]:
    """Where features are probed and those of random weights are not: a probe of these may be nearly as good."""
    contenders = done.study.contenders
    if not any(contender.probed for contender in contenders) or any(contender.is_untrained for contender in contenders):
        return []
    return ["What the same probe makes of random weights was not measured: add untrained to --pretrain."]


def _best_recipes(done: Conducted) -> list[str]:
    """Each model with the recipe that suits it, chosen on validation, where it was trained with several; the best model first."""
    own: dict[str, list[tuple[float, float, str]]] = {}
    for contender in done.study.contenders:
        if cells := done.of(contender.name):
            validation, test = (sum(getattr(cell, name) for cell in cells) / len(cells) for name in ("validation", "accuracy"))
            own.setdefault(contender.base, []).append((validation, test, contender.name))
    if all(len(trained) < 2 for trained in own.values()):
        return []
    best = sorted((max(trained) for trained in own.values()), key=lambda trained: -trained[1])
    return ["Each with its better recipe, chosen on validation: " + ", ".join(f"{name} {percent(test)}" for _, test, name in best) + "."]


# ---- what grows ---------------------------------------------------------------------------------------------------------------------


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


def finish_growth(
    done: Conducted,
    tables: list[Table],
    fits: dict[str, PowerLaw],
    crossings: dict[str, Crossing],
    pairs: list[dict[str, Any]],
    conclusion: str,
    figures: list[str],
    before: Sequence[Table] = (),
    **more: Any,
) -> Result:
    """`before`: tables that are shown first and are no rows of this result."""
    values = {
        **_common_values(done),
        "rows": [dataclasses.asdict(entry) for table in tables for entry in table.rows],
        "fits": {name: fit.to_dict() for name, fit in fits.items()},
        "crossings": {name: crossing.to_dict() for name, crossing in crossings.items()},
        "pairs": pairs,
        "conclusion": conclusion,
        "figures": figures,
        **more,
    }
    return finish(done.folder, lambda markdown: "\n".join(table.text(markdown) for table in [*before, *tables]), values)


# ---- data ----------------------------------------------------------------------------------------------------------------------


def _conclude_data(done: Conducted) -> Result:
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
    study: Experiment,
    fits: dict[str, PowerLaw],
    crossings: dict[str, Crossing],
    ends: dict[int, list[Pair]],
    remarks: Sequence[str] = (),
    changes: Sequence[GapChange] = (),
) -> str:
    sentences = []
    for size, pairs in ends.items():
        sentences.append(f"With {size:,} training pictures: {difference_text(pairs) or f'no test was made ({untested(study)})'}.")
    sentences += [f"From {study.sizes[0]:,} to {study.sizes[-1]:,} pictures {change}." for change in changes]
    sentences += how_tested(len(changes) + sum(map(len, ends.values())))
    sentences += [f"{pair}: {crossing}." for pair, crossing in crossings.items()]
    sentences += [f"The error of {name} {fit}." for name, fit in fits.items()]
    sentences += [*bent_remarks(fits), *thin_remarks(fits), *remarks]
    sentences.append(
        f"This holds for {study.data.name}, the same {study.budget.words} at every size, and no extra regularisation on small subsets; "
        f"beyond {study.sizes[-1]:,} pictures it is extrapolation."
    )
    return " ".join(sentences)


# ---- compute -------------------------------------------------------------------------------------------------------------------


def _conclude_compute(done: Conducted) -> Result:
    study = done.study
    families: dict[str, list[Outcome]] = {}
    for contender in study.contenders:
        family = "resnet" if contender.run.model.family.startswith("resnet") else contender.run.model.family
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
    lines += [f"The families {pair}: {crossing} training FLOPs." for pair, crossing in crossings.items()]
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
    tested = [{**pair.to_dict(), "share": share} for share, tested in pairs.items() for pair in tested]
    return finish_growth(done, tables, fits, crossings, tested, " ".join(lines), figures)


def _order(pairs: dict[float, list[Pair]], study: Experiment) -> list[str]:
    """What may be said of who is above whom: only what a test tells, at the same part of the budget."""
    count = sum(map(len, pairs.values()))
    if not count:
        return [f"No order of the models is claimed: no test was made ({untested(study)})."]
    out = []
    for share, tested in pairs.items():
        out.append(f"At {percent(share, 0)} of {study.budget.words}: {difference_text(tested)}.")
    return [*out, *how_tested(count)]


def _overlap(first: PowerLaw, second: PowerLaw) -> bool:
    return max(min(first.sizes), min(second.sizes)) < min(max(first.sizes), max(second.sizes))
