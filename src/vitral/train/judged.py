"""The data that a model is judged on: what it learnt from is divided as it was then, whatever has been added to it since."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vitral.base.errors import UsageError
from vitral.base.progress import say
from vitral.config import DataConfig, from_dict
from vitral.data.images.preprocess import Preprocess
from vitral.data.splits.open import open_split
from vitral.data.splits.seen import SeenImages
from vitral.data.splits.split import Split
from vitral.model.classifier import Classifier
from vitral.run.folder import seen_by


@dataclass(frozen=True)
class _JudgedData:
    """How data is opened to judge one model."""

    config: DataConfig
    split: str | None
    """Which images; None: as `open_split` says."""
    preprocess: Preprocess
    seen: SeenImages | None = None
    """What the model saw of this very data."""

    @property
    def name(self) -> str:
        return self.config.name

    def open(self, split: str | None = None) -> Split:
        """The split it is judged on, or another one."""
        return open_split(self.config, self.preprocess, split or self.split, self.seen)


def as_trained(
    model: Classifier, data: str | DataConfig, split: str | None, root: str | None, on_bad_image: Literal["fail", "skip"]
) -> _JudgedData:
    """How the data is opened: data that the model learnt from as it was divided then, or an image of its training may be in the test."""
    config = DataConfig(name=data, root=root, on_bad_image=on_bad_image) if isinstance(data, str) else data
    preprocess, before = Preprocess.of(model), model.origin.data
    if not trained_on(model, config.name):
        if split == "sealed":
            raise UsageError(
                f"the sealed pictures of {config.name} open for a model that was confirmed on them", "train it with --stage confirm"
            )
        return _JudgedData(config, split, preprocess)
    if isinstance(data, str):
        own = from_dict(DataConfig, before, "the model's origin")
        config = dataclasses.replace(own, name=data, root=root or own.root, on_bad_image=on_bad_image)
    elif config.stage != before.get("stage", "open"):  # only what the model did not learn can be sealed to it
        own = before.get("stage", "open")
        raise UsageError(f"the model learnt from {config.name} with stage = {own}, not {config.stage}", f"give stage={own!r}")
    if split is None:
        split = "validation" if config.stage == "choose" else "test"
        more = "" if config.stage == "choose" else "; --split all takes everything"
        say(f"the model learnt from {config.name}: it is scored on the {split} split of its training{more}")
    return _JudgedData(config, split, preprocess, seen_by(model))


def trained_on(model: Classifier, data: str) -> bool:
    """Whether the model was trained here on this data."""
    name = model.origin.data.get("name")
    return isinstance(name, str) and _path_of(name) == _path_of(data)


def _path_of(data: str) -> str | Path:
    """photos and photos/ are one folder."""
    kind, _, path = data.partition(":")
    return Path(path).resolve() if kind == "folder" else data
