"""Named runs: name → RunConfig. Each is a starting point; every field can be replaced on the command line."""

from __future__ import annotations

import dataclasses
from typing import Any

from vitral.base.errors import one_of
from vitral.config import DataConfig, RunConfig, TrainConfig
from vitral.presets.models import model

DIGITS = RunConfig(
    name="digits",
    model=model("digits"),
    data=DataConfig(name="digits", augment="light"),
    train=TrainConfig(epochs=60, batch_size=64, lr=2e-3, weight_decay=0.05, warmup=0.1, ema=0.99),
)

RUNS: dict[str, RunConfig] = {"digits": DIGITS}


def run(name: str, **changes: Any) -> RunConfig:
    """A named run; `changes` replace fields of its data, train or top level, whichever has the name."""
    if name not in RUNS:
        raise one_of("run", name, RUNS)
    return change(RUNS[name], **changes)


def change(config: RunConfig, **changes: Any) -> RunConfig:
    """`config` with fields replaced, wherever in it they live; model fields go in as `model=ModelConfig`."""
    parts: dict[str, dict[str, Any]] = {"data": {}, "train": {}, "": {}}
    names = {
        part: {f.name for f in dataclasses.fields(kind)} for part, kind in (("", RunConfig), ("data", DataConfig), ("train", TrainConfig))
    }
    for key, value in changes.items():
        part = next((part for part in ("", "train", "data") if key in names[part]), None)
        if part is None:
            raise one_of("run setting", key, sorted(set().union(*names.values())))
        parts[part][key] = value
    return dataclasses.replace(
        config,
        **{part: dataclasses.replace(getattr(config, part), **parts[part]) for part in ("data", "train") if parts[part]},
        **parts[""],
    )
