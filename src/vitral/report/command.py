"""The command that trains a run again: the nearest named run, and every setting that differs from it."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from vitral.base.errors import ConfigError
from vitral.config import ModelConfig, RunConfig
from vitral.presets.models import MODELS
from vitral.presets.runs import RUNS


def training_command(config: RunConfig) -> str:
    """`vitral train digits --set epochs=3 seed=1`."""
    best = min((_from(name, config) for name in RUNS), key=lambda words: (words[2] != config.name, len(words)))
    return shlex.join(best)


def _from(name: str, config: RunConfig) -> list[str]:
    base = RUNS[name]
    words = ["vitral", "train", name]
    if config.data.name != base.data.name:
        words += ["--data", config.data.name]
    named, settings = _nearest_model(base.model, config.model)
    if named:
        words += ["--model", named]
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
