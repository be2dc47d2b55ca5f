"""The command that trains a run again: the named run it began as, else the nearest, and every setting that differs from it."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from vitral.base.errors import ConfigError
from vitral.config import TUNED, ModelConfig, RunConfig
from vitral.presets.models import MODELS
from vitral.presets.runs import RUNS


def training_command(config: RunConfig) -> str:
    """`vitral train digits --set epochs=3 seed=1`."""
    names = [config.preset] if config.preset in RUNS else RUNS
    return shlex.join(min((_from(name, config) for name in names), key=lambda words: (words[2] != config.name, len(words))))


def _from(name: str, config: RunConfig) -> list[str]:
    base = RUNS[name]
    words = ["vitral", "train", name]
    if config.data.name != base.data.name:
        words += ["--data", config.data.name]
    if config.weights is not None:  # they say what the model is, and no other word on it is taken
        named, settings = None, [setting for setting in _changes(base.model, config.model) if setting.partition("=")[0] in TUNED]
    else:
        named, settings = _nearest_model(base.model, config.model)
    if named:
        words += ["--model", named]
    if config.fixed_size and config.model.image_size == base.model.image_size:  # with other data it would not be kept without a word
        words += ["--image-size", *map(str, config.model.image_size)]
    if config.weights != base.weights:
        words += ["--from", str(config.weights)]
    if config.name != base.name:
        words += ["--name", config.name]
    settings += _changes(base.data, config.data, skip="name") + _changes(base.train, config.train)
    return words + (["--set", *settings] if settings else [])


def _nearest_model(base: ModelConfig, wanted: ModelConfig) -> tuple[str | None, list[str]]:
    """(name of a model, settings) with the fewest settings; None: the run's own model."""
    best: tuple[str | None, list[str]] = (None, _changes(base, wanted))
    for name, model in MODELS.items():
        try:
            started = dataclasses.replace(model, image_size=base.image_size)  # `--model` keeps the run's picture size where it can
        except ConfigError:
            started = model
        settings = _changes(started, wanted)
        if len(settings) + 1 < len(best[1]):
            best = name, settings
    return best


def _changes(base: Any, wanted: Any, skip: str = "") -> list[str]:
    pairs = ((field.name, getattr(wanted, field.name)) for field in dataclasses.fields(wanted) if field.name != skip)
    return [f"{name}={_word(value)}" for name, value in pairs if value != getattr(base, name)]


def _word(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return ",".join(map(_word, value)) if isinstance(value, tuple) else str(value)
