"""A fair fight: same splits, same augmentation, same budget, same tuning effort, final weights, the test split opened once per run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from vitral.base.text import percent
from vitral.config import DataConfig, TrainConfig
from vitral.data.splits.open import open_data
from vitral.study.fight import plots
from vitral.study.fight.compare_across_data import across_data, own_folders
from vitral.study.fight.conclude import compare_pairs, conclude
from vitral.study.fight.conduct import Conducted, check_folder, common_values, conduct, copy_remarks, settling_remarks
from vitral.study.fight.contenders import check_model, make_contenders
from vitral.study.fight.forecast import expect, forecast, together
from vitral.study.fight.methods import by_method
from vitral.study.fight.pool import Pool
from vitral.study.fight.protocol import Budget, Study
from vitral.study.fight.recipe import Recipe
from vitral.study.fight.result import Result, finish, study_folder
from vitral.study.fight.table import Table, row
from vitral.study.fight.vary import read_varied, vary
from vitral.weights.load import check_source

MODELS = ("vit", "cnn", "resnet18", "hybrid")


def compare(
    data: str | Sequence[str],
    models: Sequence[str] | None = None,
    *,
    budget: str = "samples=50000",
    seeds: int = 3,
    lrs: Sequence[float] | None = None,
    tuning_share: float = 0.25,
    weights: Mapping[str, str] | None = None,
    tune: Literal["all", "attention", "head", "lora"] = "all",
    claim: Literal["auto", "significance", "none"] = "auto",
    pretrain: Sequence[str] | None = None,
    vary: str | None = None,
    max_hours: float | None = None,
    out: str | Path | None = None,
    **recipe: Any,
) -> Result:
    """Train several models under one budget and say which is better, as far as that can be said: `vitral compare` as a call.

    - data: a name from `vitral data list` or "folder:PATH"; several: the same comparison on each, then one table of them all.
    - models: "vit" (a ViT made for the data's size), "vit-small", "vit-large", "hybrid", "cnn", "resnet18", "s/4" …;
      "cnn@parameters", "vit@flops": as wide as makes them equal to the first model.
    - budget: what one final run may spend: "samples=50000", "epochs=10", "seconds=20" or "flops=1e15".
    - seeds: final runs per model; one: a description without intervals and tests.
    - lrs: learning rates to choose from on validation, each tried with `tuning_share` of the budget; one: no tuning.
    - weights: model → what it starts from, anything that `vitral.load` takes; `tune` says which of its parameters learn.
    - pretrain: compare ways of learning instead of models: "lejepa", "dino", "mae", "supervised", each with the one model (vit) and
      the whole budget, then judged by a linear probe of its frozen features. The first three never see a label; "untrained" is what the
      same probe makes of random weights.
    - vary: one setting in several values, "norm_order=pre,post": each model is a contender with each of them.
    - max_hours: refuse what is forecast to take longer, by a few steps of each model that are timed before anything is spent.
    - out: the study's folder (runs/compare-DATA); a study in it goes on where it was stopped.
    - recipe: fields of `Recipe`: recipe ("plain", "strong" or "plain,strong"), optimizer, schedule, ema, label_smoothing, augment,
      batch_size, weight_decay, validation, image_size, device, parallel, quiet …

        result = vitral.study.compare("digits", ["vit", "cnn"], budget="samples=20000")
        result.rows[0]["mean"], result.conclusion, result.path
    """
    names, shared, weights = [data] if isinstance(data, str) else list(data), Recipe(**recipe), dict(weights or {})
    folder = study_folder(out, "compare" if pretrain is None else "compare-pretrain", *names)
    studies = [
        comparison(
            shared.data_config(name),
            models or list(weights) or (MODELS[:1] if pretrain else MODELS),
            Budget.parse(budget),
            seeds=seeds,
            train=shared.train_config(tune),
            lrs=lrs,
            tuning_share=tuning_share,
            weights=weights,
            image_size=shared.image_size,
            claim=claim,
            recipes=shared.recipes(),
            methods=pretrain,
            given=shared.given(),
            varied=vary,
        )
        for name in names
    ]
    pool = Pool(shared.cells_at_a_time(), shared.ray, shared.quiet)
    if len(studies) == 1:
        check_folder(studies[0], folder)
        expect(lambda: forecast(studies[0], pool.parallel, shared.quiet, folder), max_hours)
        return run_comparison(studies[0], folder, pool)
    planned = dict(zip(own_folders(studies, folder), studies, strict=True))
    expect(
        lambda: together({f"{inner.name}: ": forecast(study, pool.parallel, shared.quiet, inner) for inner, study in planned.items()}),
        max_hours,
    )
    return across_data(studies, folder, lambda study, inner: run_comparison(study, inner, pool))


def comparison(
    data: DataConfig,
    models: Sequence[str],
    budget: Budget,
    *,
    seeds: int = 3,
    train: TrainConfig | None = None,
    lrs: Sequence[float] | None = None,
    tuning_share: float = 0.25,
    weights: dict[str, str] | None = None,
    image_size: int | tuple[int, int] | None = None,
    claim: str = "auto",
    recipes: Mapping[str, dict[str, Any]] | None = None,
    methods: Sequence[str] | None = None,
    given: Mapping[str, Any] | None = None,
    varied: str | None = None,
) -> Study:
    """The protocol of a comparison. Opens the data to learn its size; the test split stays closed."""
    for name in models:  # first of all: data may have to be fetched
        if name not in (weights or {}):
            check_model(name)
    for source in (weights or {}).values():
        check_source(source)
    if varied is not None:
        read_varied(varied)
    if methods is not None:
        data = dataclasses.replace(data, split_by="chance")  # by class would show the methods something of the labels
    opened, train = open_data(data, image_size=image_size), train or Recipe().train_config()
    size = opened.image_size if image_size is not None else None
    contenders = make_contenders(models, opened, lrs=lrs, weights=weights, tune=train.tune, weights_size=size, recipes=recipes)
    contenders = contenders if varied is None else vary(contenders, varied)
    return Study(
        kind="compare",
        data=data,
        contenders=contenders if methods is None else by_method(methods, contenders, data.name, given or {}),
        budget=budget,
        images=len(opened.train),
        seeds=tuple(range(seeds)),
        train=train,
        tuning_share=tuning_share,
        claim=("significance" if seeds > 1 else "none") if claim == "auto" else claim,  # type: ignore[arg-type]
    )


def run_comparison(study: Study, out: str | Path, pool: Pool | None = None) -> Result:
    """Run a comparison, or go on with it; its table, tests, pictures and conclusion are in `out` at the end."""
    pool = pool or Pool()
    done = conduct(study, out, pool)
    claim = study.claim == "significance"
    kept = [contender for contender in study.contenders if done.of(contender.name)]
    table = Table(
        tuple(row(cells := done.of(contender.name), done.interval(cells) if claim else None, contender.note) for contender in kept),
        f"{study.data.name} at {study.budget.words}",
        tuple(f"{contender.name}: {contender.note}" for contender in kept),
    )
    correct = done.correct()
    enough = claim and len(correct) > 1 and min(map(len, correct.values())) > 1
    pairs = compare_pairs({"": correct})[""] if enough else []
    conclusion = conclude(
        table.rows,
        pairs,
        data=study.data.name,
        budget=study.budget.words,
        remarks=[*best_recipes(done), *missing_reference(done), *done.tuning.remarks(), *settling_remarks(done), *copy_remarks(done)],
        failed=len(done.failed),
        shared=pool.parallel if study.budget.kind == "seconds" else 1,
        pretrained=any(contender.weights for contender in kept),
        claim=claim,
    )
    values = {
        **common_values(done),
        "rows": [asdict(entry) for entry in table.rows],
        "pairs": [pair.to_dict() for pair in pairs],
        "conclusion": conclusion,
        "figures": plots.draw_compare(done, table),
    }
    return finish(done.folder, table.text, values)


def missing_reference(done: Conducted) -> list[str]:
    """Where features are probed and those of random weights are not: a probe of these may be nearly as good."""
    contenders = done.study.contenders
    if not any(contender.probed for contender in contenders) or any(contender.untrained for contender in contenders):
        return []
    return ["What the same probe makes of random weights was not measured: add untrained to --pretrain."]


def best_recipes(done: Conducted) -> list[str]:
    """Each model with the recipe that suits it, chosen on validation, where it was trained with several; the best model first."""
    own: dict[str, list[tuple[float, float, str]]] = {}
    for contender in done.study.contenders:
        if cells := done.of(contender.name):
            validation, test = (sum(getattr(cell, name) for cell in cells) / len(cells) for name in ("validation", "accuracy"))
            own.setdefault(contender.base, []).append((validation, test, contender.name))
    if all(len(found) < 2 for found in own.values()):
        return []
    best = sorted((max(found) for found in own.values()), key=lambda found: -found[1])
    return ["Each with its better recipe, chosen on validation: " + ", ".join(f"{name} {percent(test)}" for _, test, name in best) + "."]
