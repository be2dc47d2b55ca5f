"""A fair fight: same splits, same augmentation, same budget, same tuning effort, final weights, the test split opened once per run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vitral.base.device import pick_device
from vitral.base.errors import UsageError
from vitral.base.files import make_folder, read_json, write_json
from vitral.base.layout import STUDY
from vitral.base.manifest import vouching
from vitral.base.text import percent, table
from vitral.config import TrainConfig
from vitral.data.splits.open import open_data
from vitral.study.fight.conclude import conclude
from vitral.study.fight.conduct import conduct
from vitral.study.fight.contenders import by_method, check_model, make_contenders, read_varied, templates, vary_setting
from vitral.study.fight.experiment import Budget, Experiment
from vitral.study.fight.folder import Result, check_folder, check_study_folder, finish, folder_name, study_folder
from vitral.study.fight.forecast import expect, forecast, together
from vitral.study.fight.pool import Pool
from vitral.study.fight.statistics import LEVEL, adjust
from vitral.weights.load import check_source

_MODELS = ("vit", "cnn", "resnet18", "hybrid")
_ACROSS = "several"
"""Kind of a study of several data sets, in its study.json."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is equal for all contenders of a study beside their training, and where its cells run."""

    budget: str = "samples=50000"
    seeds: int = 3
    lrs: Sequence[float] | None = None
    tuning_share: float = 0.25
    claim: Literal["auto", "significance", "none"] = "auto"
    recipe: str = "plain"
    image_size: int | tuple[int, int] | None = None
    max_hours: float | None = None
    parallel: int | None = None
    ray: str | None = None
    quiet: bool = False

    @classmethod
    def split(cls, options: Mapping[str, Any]) -> tuple[Terms, dict[str, Any]]:
        """(terms, settings of the training and its data) of a call's keywords; None is not asked for."""
        asked = {name: value for name, value in options.items() if value is not None}
        own = {field.name for field in dataclasses.fields(cls)} & set(asked)
        return cls(**{name: asked[name] for name in own}), {name: value for name, value in asked.items() if name not in own}

    def held_equal(self) -> dict[str, Any]:
        """As the fields of an experiment."""
        claim = ("significance" if self.seeds > 1 else "none") if self.claim == "auto" else self.claim
        return {"seeds": tuple(range(self.seeds)), "tuning_share": self.tuning_share, "claim": claim}

    def pool(self, train: TrainConfig) -> Pool:
        """As many cells at a time as there are cores for, one on a GPU."""
        if self.parallel is not None:
            return Pool(self.parallel, self.ray, self.quiet)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        parallel = max(1, cores // (train.threads or 1)) if pick_device(train.device).type == "cpu" else 1
        return Pool(parallel, self.ray, self.quiet)


def compare(
    data: str | Sequence[str],
    models: Sequence[str] | None = None,
    *,
    weights: Mapping[str, str] | None = None,
    tune: Literal["all", "attention", "head", "lora"] = "all",
    pretrain: Sequence[str] | None = None,
    vary: str | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Result:
    """Train several models under one budget and say which is better, as far as that can be said: `vitral compare` as a call.

    - data: a name from `vitral data list` or "folder:PATH"; several: the same comparison on each, then one table of them all.
    - models: "vit" (a ViT made for the data's size), "vit-small", "vit-large", "hybrid", "cnn", "resnet18", "s/4" …;
      "cnn@parameters", "vit@flops": as wide as makes them equal to the first model.
    - weights: model → what it starts from, anything that `vitral.load` takes; `tune` says which of its parameters learn.
    - pretrain: compare ways of learning instead of models: "lejepa", "dino", "mae", "supervised", each with the one model (vit) and
      the whole budget, then judged by a linear probe of its frozen features. The first three never see a label; "untrained" is what the
      same probe makes of random weights.
    - vary: one setting in several values, "norm_order=pre,post": each model is a contender with each of them.
    - out: the study's folder (runs/compare-DATA); the same call resumes a study in it.

    What is equal for all, as keywords:

    - budget: what one final run may spend: "samples=50000", "epochs=10", "seconds=20" or "flops=1e15".
    - seeds: final runs per model (3); one: a description without intervals and tests. claim: "significance" or "none".
    - lrs: learning rates to choose from on validation, each tried with `tuning_share` (0.25) of the budget; one: no tuning.
    - recipe: "plain", "strong" or "plain,strong".
    - max_hours: refuse what is forecast to take longer, by a few steps of each model that are timed before anything is spent.
    - image_size, parallel, ray, quiet, and every field of `DataConfig` and `TrainConfig` that the study does not decide itself: optimizer,
      augment, batch_size, weight_decay, validation, device …

        result = vitral.study.compare("digits", ["vit", "cnn"], budget="samples=20000")
        result.rows[0]["mean"], result.conclusion, result.path
    """
    names, terms = [data] if isinstance(data, str) else list(data), Terms.split(options)[0]
    folder = study_folder(out, "compare" if pretrain is None else "compare-pretrain", *names)
    studies = [comparison(name, models, weights=weights, tune=tune, pretrain=pretrain, vary=vary, **options) for name in names]
    folders = own_folders(studies, folder) if len(studies) > 1 else [check_folder(studies[0], folder)]
    words = [f"{path.name}: " * (len(studies) > 1) for path in folders]
    pool = terms.pool(studies[0].contenders[0].run.train)
    each = list(zip(words, studies, folders, strict=True))
    expect(lambda: together({name: forecast(study, pool.parallel, terms.quiet, path) for name, study, path in each}), terms.max_hours)
    if len(studies) > 1:  # at once, so that an unfinished comparison can be recognised
        with vouching(make_folder(folder), STUDY):
            write_json(folder / STUDY, {"kind": _ACROSS, "studies": _by_data(studies, folders)})
    done = [conclude(conduct(study, path, pool), pool.parallel) for _, study, path in each]
    return done[0] if len(done) == 1 else conclude_across(folder, [result.values for result in done], _by_data(studies, folders))


def comparison(
    data: str,
    models: Sequence[str] | None = None,
    *,
    weights: Mapping[str, str] | None = None,
    tune: str = "all",
    pretrain: Sequence[str] | None = None,
    vary: str | None = None,
    **options: Any,
) -> Experiment:
    """The experiment that `compare` runs on one data set. It opens the data to learn its size; the test split stays closed."""
    (terms, settings), weights = Terms.split(options), weights or {}
    models = models or list(weights) or (_MODELS[:1] if pretrain else _MODELS)
    budget, recipes = Budget.parse(terms.budget), templates(data, terms.recipe, tune=tune, **settings)
    for name in models:  # first of all: data may have to be fetched
        if name not in weights:
            check_model(name)
    for source in weights.values():
        check_source(source)
    if vary is not None:
        read_varied(vary)
    if pretrain is not None:  # by class would show the methods something of the labels
        by_chance = {name: dataclasses.replace(run.data, split_by="chance") for name, run in recipes.items()}
        recipes = {name: dataclasses.replace(run, data=by_chance[name]) for name, run in recipes.items()}
    opened = open_data(next(iter(recipes.values())).data, image_size=terms.image_size)
    size = opened.image_size if terms.image_size is not None else None
    contenders = make_contenders(models, opened, recipes, lrs=terms.lrs, weights=weights, weights_size=size)
    contenders = contenders if vary is None else vary_setting(contenders, vary)
    contenders = contenders if pretrain is None else by_method(pretrain, contenders, settings)
    return Experiment("compare", contenders, budget, len(opened.train), **terms.held_equal())


# ---- several data sets --------------------------------------------------------------------------------------------------------------


def own_folders(studies: Sequence[Experiment], folder: Path) -> list[Path]:
    """A folder in `folder` for each study, named after its data; refused before the first is trained where it holds anything else."""
    names = [folder_name(study.data.name) for study in studies]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"data set {twice} is named twice", "name each data set once")
    if (check_study_folder(folder) / STUDY).exists() and not _is_across(folder):
        raise UsageError(f"{folder} holds a study of one data set", "choose another --out")
    return [check_folder(study, folder / name) for study, name in zip(studies, names, strict=True)]


def _by_data(studies: Sequence[Experiment], folders: Sequence[Path]) -> dict[str, str]:
    return {study.data.name: path.name for study, path in zip(studies, folders, strict=True)}


def conclude_across(folder: Path, done: Sequence[dict[str, Any]], studies: Mapping[str, str]) -> Result:
    """One result of the same comparison on several data sets: a row for each model, a column for each data set."""
    pairs = [{"data": values["data"], **pair} for values in done for pair in values["pairs"]]
    for pair, (adjusted, at_most) in zip(pairs, adjust([(pair["p"], pair["bound"]) for pair in pairs]), strict=True):
        pair |= {"adjusted": adjusted, "at_most": at_most, "different": adjusted < LEVEL}
    conclusions = [f"{values['data']}: {values['conclusion']}" for values in done]
    values = {
        "kind": _ACROSS,
        "data": [values["data"] for values in done],
        **{key: done[0][key] for key in ("budget", "seeds", "recipe", "machine")},
        "models": {name: note for values in done for name, note in values["models"].items()},
        "studies": dict(studies),
        "rows": [{"data": values["data"], **row} for values in done for row in values["rows"]],
        "pairs": pairs,
        "conclusion": "\n\n".join([*conclusions, *_together(pairs)]),
        "failed": {f"{values['data']} {cell}": why for values in done for cell, why in values["failed"].items()},
    }
    return finish(folder, lambda markdown: _table(done, markdown), values)


def _together(pairs: Sequence[dict[str, Any]]) -> list[str]:
    """Above, each data set was tested by itself; who reads this page reads all of its tests."""
    if not pairs:
        return []
    named = {
        different: [f"{p['a']} and {p['b']} on {p['data']}" for p in pairs if p["different"] == different] for different in (True, False)
    }
    parts = [f"{word}: {', '.join(named[key])}" for key, word in ((True, "told apart"), (False, "not told apart")) if named[key]]
    return [f"Counted together (Holm over all {len(pairs)} pairs of all data sets): {'; '.join(parts)}."]


def _is_across(folder: Path) -> bool:
    study = read_json(folder / STUDY)
    return isinstance(study, dict) and study.get("kind") == _ACROSS


def _table(done: Sequence[dict[str, Any]], markdown: bool) -> str:
    rows = [row for values in done for row in values["rows"]]
    notes = dict.fromkeys(f"{row['model']}: {row['note']}" for row in rows)
    lines = [[model, *(_accuracy(values, model) for values in done)] for model in dict.fromkeys(row["model"] for row in rows)]
    seeds = "/".join(dict.fromkeys(str(row["seeds"]) for row in rows))
    shown = "mean, 95 % interval" if any(row["interval"] for row in rows) else "mean"
    under = f"Test accuracy at {Budget.parse(done[0]['budget']).words}: {shown} over {seeds} seed{'s' * (seeds != '1')}."
    grid = table(lines, ["model", *(values["data"] for values in done)], "lr" if markdown else "l", markdown)
    return "\n\n".join([grid, under, "\n".join(f"- {note}" if markdown else note for note in notes)])


def _accuracy(values: dict[str, Any], model: str) -> str:
    row = next((row for row in values["rows"] if row["model"] == model), None)
    if row is None:
        return "failed"
    if row["interval"]:
        return f"{percent(row['mean'])} ({percent(row['interval'][0])} – {percent(row['interval'][1])})"
    return f"{percent(row['mean'])}{' (one seed)' if row['seeds'] == 1 else ''}"
