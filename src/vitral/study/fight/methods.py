"""Ways of learning as contenders: one model, the same budget for each, and the same linear probe of what it has learnt."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from vitral.base.errors import ConfigError, UsageError, one_of
from vitral.presets.runs import pretraining
from vitral.study.fight.contenders import LRS
from vitral.study.fight.protocol import Contender

METHODS = ("lejepa", "dino", "mae", "supervised", "untrained")
WORDS = {
    "lejepa": "views pulled together, embeddings kept Gaussian",
    "dino": "a student answers like its own EMA",
    "mae": "hidden patches rebuilt",
    "supervised": "the classes named, with labels",
    "untrained": "random weights, nothing learnt",
}
TAKEN = (
    *("optimizer", "betas", "schedule", "warmup", "clip", "final_lr", "ema", "token_drop", "token_drop_until", "token_drop_after"),
    "evaluate_every",
)
"""What a method takes from its own run; batch size, weight decay and all else are the study's."""


def by_method(methods: Sequence[str], models: Sequence[Contender], data: str, given: Mapping[str, Any]) -> tuple[Contender, ...]:
    """The one model as a contender of each method; `given`: settings that were asked for, and come before a method's own."""
    if wrong := next((name for name in methods if name not in METHODS), None):
        raise one_of("method", wrong, METHODS)
    if len(models) != 1 or models[0].weights is not None:
        raise UsageError("--pretrain compares methods of one model, from scratch, with one recipe", "name one model, without --from")
    (model,) = models
    if not model.model.is_transformer:
        raise ConfigError(f"pre-training is for models with patches, not a {model.model.family}", "choose a ViT")
    return tuple(_contender(method, model, data, given) for method in methods)


def _contender(method: str, model: Contender, data: str, given: Mapping[str, Any]) -> Contender:
    shared: dict[str, Any] = {"name": method, "note": f"{WORDS[method]}; linear probe of {model.note}", "base": method, "probed": True}
    if method == "supervised":
        return dataclasses.replace(model, **shared)
    if method == "untrained":  # of its starts the best one is chosen, as for the others
        return dataclasses.replace(model, **shared, untrained=True, lrs=model.lrs[:1], widens=False)
    run = pretraining(data, method)  # type: ignore[arg-type]
    settings = {"augment": "none", **{name: getattr(run.train, name) for name in TAKEN}}  # its views are its augmentation
    settings |= {name: value for name, value in given.items() if name not in ("augment", "label_smoothing")}
    lrs = LRS[settings["optimizer"]] if model.widens else model.lrs
    return dataclasses.replace(model, **shared, settings=settings, pretrain=run.pretrain, lrs=lrs)
