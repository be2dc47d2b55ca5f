"""The sealed pictures: a tenth of a named set's training pictures that no run learns from or looks at while settings are chosen.

A test split that is opened after every change is chosen on, little by little. So settings are chosen without it (stage = choose), then a
confirming run (stage = confirm) is scored on test and on the sealed pictures with the same weights: what test has more was overfitted.
Which pictures are sealed is fixed here, for everybody and for good; no setting changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitral.base.errors import ConfigError, DataError
from vitral.config import DataConfig
from vitral.data.sources.catalogue import CATALOGUE
from vitral.data.sources.protocol import ImageSet, Source
from vitral.data.splits.split import carve

SHARE = 0.1
"""Of the training pictures, class by class: 5,000 of CIFAR-10's 50,000."""
_SEED = 19


def seal(source: Source) -> tuple[ImageSet, ImageSet]:
    """(what may be learnt from, what is sealed) of the training pictures of a named set."""
    if source.name not in CATALOGUE or source.test is None:
        raise _nothing_sealed(source.name)
    rest, held = carve(source.train.labels, SHARE, _SEED, "sealed split")
    return source.train.select(rest), source.train.select(held)


def _nothing_sealed(data: str) -> ConfigError:
    return ConfigError(
        f"{data} has no sealed pictures: only named sets with a test split of their own have",
        "leave --stage out, or use a name from `vitral data list`",
    )


def check_stage(config: DataConfig) -> None:
    """Before anything is opened: only named sets have stages."""
    if config.stage != "open" and config.name not in CATALOGUE:
        raise _nothing_sealed(config.name)


def validation_share(config: DataConfig) -> float:
    """Validation share of the images that remain after sealing. 0.1 of CIFAR-10 is 5,000 in every stage."""
    return config.validation if config.stage == "open" else min(config.validation / (1 - SHARE), 0.99)


def check_open(config: DataConfig, split: str) -> None:
    """Refuse a split that stays closed in this stage."""
    if split == "sealed" and config.stage != "confirm":
        raise DataError(
            f"the sealed pictures of {config.name} are closed to a run of stage = {config.stage}",
            "they open in a training with --stage confirm alone",
        )
    closed = {"test": "test", "all": "test and sealed"}
    if split in closed and config.stage == "choose":
        raise DataError(
            f"the {closed[split]} pictures of {config.name} stay closed while settings are chosen (stage = choose)",
            "look at --split validation; --stage confirm opens them at its end",
        )


def check_seen(trained_on: Mapping[str, Any], config: DataConfig, what: str) -> None:
    """Refuse weights or a teacher that may know the pictures that this run must not: they learnt from the same set in another stage."""
    before = trained_on.get("stage", "open")
    if config.stage != "open" and trained_on.get("name") == config.name and before != config.stage:
        raise ConfigError(
            f"{what} learnt from {config.name} with stage = {before}: what is closed to this run may be known there",
            f"train it with --stage {config.stage} too",
        )
