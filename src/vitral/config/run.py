"""One training, and every config to and from JSON."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vitral.base.errors import ConfigError
from vitral.base.settings import fit_value, say_kind
from vitral.config.data import DataConfig
from vitral.config.model import OPEN, ModelConfig
from vitral.config.train import TrainConfig

C = TypeVar("C")

TUNED = ("image_size", "dropout", "drop_path")
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
    """Start from these weights (anything `vitral.load` takes) instead of from scratch: they say what the model is."""

    @property
    def opens(self) -> tuple[str, ...]:
        """The splits that are opened when the training is over, in this order."""
        if not self.train.test or self.data.stage == "choose":
            return ()
        return ("sealed", "test") if self.data.stage == "confirm" else ("test",)

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise ConfigError(f"run name {self.name!r} cannot be a folder name", "use letters, digits and dashes")
        if self.train.head_start not in (None, "as-is") and self.weights is None:
            raise ConfigError(f"head_start = {self.train.head_start} needs weights", "name them with --from, or set head_start = as-is")


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
        if dataclasses.is_dataclass(hint):
            values[name] = from_dict(typing.cast("type[Any]", hint), value, f"{where}.{name}")
        elif value is None and name in OPEN and issubclass(kind, ModelConfig):
            values[name] = None
        elif fitted := fit_value(hint, value):
            values[name] = fitted[0]
        else:
            raise ConfigError(f"{where}.{name} is {value!r}", f"it must be {say_kind(hint)}")
    return kind(**values)
