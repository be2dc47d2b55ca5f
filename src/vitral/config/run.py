"""One training, and every config to and from JSON."""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from vitral.base.errors import ConfigError
from vitral.base.settings import fit_value, say_kind
from vitral.config.data import DataConfig
from vitral.config.model import OPEN, ModelConfig
from vitral.config.pretrain import PretrainConfig
from vitral.config.train import TrainConfig

C = TypeVar("C")

TUNED = ("image_size", "dropout", "drop_path", "gradient_checkpointing")
"""What a run may say about a model that comes with weights; they say the rest."""


@dataclass(frozen=True)
class RunConfig:
    """One training: everything that decides its result."""

    name: str = "digits"
    model: ModelConfig = field(default_factory=lambda: ModelConfig().opened())
    """What it leaves open is decided by the data, or by the weights where there are some."""
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    weights: str | None = None
    """Weights to start from; anything `vitral.load` takes. They decide what the model is. None: from scratch."""
    pretrain: PretrainConfig | None = None
    """Learn without labels, in this way; None: learn to name the classes."""

    @property
    def opens(self) -> tuple[str, ...]:
        """The splits that are answered picture by picture when the training is over, in this order."""
        if not self.train.test:
            return ()
        if self.data.stage == "choose":  # nothing is opened: choices are compared on the pictures they are made on
            return ("validation",)
        return ("sealed", "test") if self.data.stage == "confirm" else ("test",)

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise ConfigError(f"run name {self.name!r} cannot be a folder name", "use letters, digits and dashes")
        if self.train.head_start not in (None, "as-is") and self.weights is None:
            raise ConfigError(f"head_start = {self.train.head_start} needs weights", "name them with --from, or set head_start = as-is")
        if self.pretrain is not None:
            self._check_pretraining()

    def _check_pretraining(self) -> None:
        train = self.train
        if not self.model.is_transformer:
            raise ConfigError(f"pre-training is for models with patches, not a {self.model.family}", "choose a ViT")
        if self.data.split_by != "chance":
            raise ConfigError("split_by = class would read labels", "set split_by = chance")
        if train.test or train.keep == "best" or train.patience is not None or train.teacher is not None:
            raise ConfigError("without labels there is no accuracy to test or to choose by", "set test = False, keep = last")
        if train.accumulate > 1:
            raise ConfigError("embeddings are compared over a whole batch, so it cannot be split", "set accumulate = 1")
        if train.strategy == "fsdp":
            raise ConfigError("pre-training runs on several processes with DDP", "set strategy = ddp")
        if train.head_start not in (None, "as-is"):
            raise ConfigError(f"head_start = {train.head_start}: pre-training has no head", "leave it out")


def run_name(preset: RunConfig, data: str) -> str:
    """What a run is called that nobody named: as its preset, or after other data, for which the preset is only where it starts."""
    kind, sign, rest = data.partition(":")
    if not sign and data == preset.data.name:
        return preset.name
    own = kind if not sign else Path(rest).stem if kind in ("csv", "parquet") else Path(rest).resolve().name if kind == "folder" else rest
    return re.sub(r"[^\w.-]+", "-", own).strip("-.") or preset.name


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain JSON values."""
    return {
        f.name: to_dict(value)
        if dataclasses.is_dataclass(value := getattr(config, f.name))
        else list(value)
        if isinstance(value, tuple)
        else value
        for f in dataclasses.fields(config)
    }


def from_dict(kind: type[C], data: dict[str, Any], where: str = "config") -> C:
    """A config from plain JSON values; unknown names and wrong types are refused by name."""
    if not isinstance(data, dict):
        raise ConfigError(f"{where} is not an object but {type(data).__name__}", "write it with to_dict or copy a run's config.json")
    hints = typing.get_type_hints(kind)
    names = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(data) - names):
        raise ConfigError(f"{where} has no field {', '.join(unknown)}", f"known fields: {', '.join(sorted(names))}")
    values: dict[str, Any] = {}
    for name, value in data.items():
        hint = hints[name]
        inner = next((part for part in typing.get_args(hint) if dataclasses.is_dataclass(part)), hint)
        if dataclasses.is_dataclass(inner) and (value is not None or inner is hint):
            values[name] = from_dict(typing.cast("type[Any]", inner), typing.cast("dict[str, Any]", value), f"{where}.{name}")
        elif value is None and name in OPEN and issubclass(kind, ModelConfig):
            values[name] = None
        elif fitted := fit_value(hint, value):
            values[name] = fitted[0]
        else:
            raise ConfigError(f"{where}.{name} is {value!r}", f"it must be {say_kind(hint)}")
    return kind(**values)
