"""Where a model comes from, and how sure we are of each thing we say about it.

A weights file does not say how its images were normalised, nor which GELU it was trained with.
Each such field is `declared` (by the source or the user) or assumed (a convention of its family).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from vitral.base.errors import WeightsError

T = TypeVar("T")

OWN = "own"
"""How a run's config names data and models that its program gave it: own:NAME."""
HALF = (0.5, 0.5, 0.5)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def per_channel(values: Sequence[float], channels: int) -> tuple[float, ...]:
    """A mean or deviation for another number of channels: each new channel gets the average of the former ones.

    First-layer kernels follow the same rule (`weights.resize.resize_channels`): channels that weigh alike are normalised alike.
    """
    values = tuple(values)
    if not _are_numbers(values):
        raise WeightsError(f"a mean or deviation per channel is {_short(values)}", "it must be numbers, one a channel")
    values = tuple(float(value) for value in values)
    if len(values) == channels:
        return values
    average = values[0] if len(set(values)) == 1 else sum(values) / len(values)
    return (average,) * channels


@dataclass(frozen=True)
class Fact(Generic[T]):
    """A value, and whether it is declared or assumed; `note`: by whom, or why."""

    value: T
    declared: bool = True
    note: str = ""

    @property
    def mark(self) -> str:
        return "declared" if self.declared else "assumed"


def fact(value: T, note: str = "") -> Fact[T]:
    return Fact(value, True, note)


def assumed(value: T, note: str = "") -> Fact[T]:
    return Fact(value, False, note)


class Change(str):
    """What was altered on the way in, as text; a new part also remembers its seed, and whether it has been trained since.

    Such as "head replaced: 7 → 10 classes, untrained (seed 0)".
    """

    what: str
    seed: int | None
    """Of new, random weights; None: nothing is new."""
    trained: bool

    def __new__(cls, what: str, seed: int | None = None, trained: bool = False) -> Change:
        change = super().__new__(cls, what if seed is None else f"{what}, {_TRAINED if trained else _UNTRAINED} (seed {seed})")
        change.what, change.seed, change.trained = what, seed, trained
        return change

    @classmethod
    def read(cls, stored: Any) -> Change:
        """A change from a file: a record, or the plain text that all were at first."""
        if isinstance(stored, Change):
            return stored
        if isinstance(stored, str):
            new = re.fullmatch(rf"(.*), ({_UNTRAINED}|{_TRAINED}) \(seed (\d+)\)", stored, re.DOTALL)
            return cls(new[1], int(new[3]), new[2] == _TRAINED) if new else cls(stored)
        if isinstance(stored, dict) and isinstance(stored.get("what"), str) and isinstance(stored.get("seed"), int):
            return cls(stored["what"], stored["seed"], stored.get("trained") is True)
        raise WeightsError("a model whose changes are no list of words", "the file that says so is damaged, or not of a model")

    def to_json(self) -> str | dict[str, Any]:
        return str(self) if self.seed is None else {"what": self.what, "seed": self.seed, "trained": self.trained}


_UNTRAINED, _TRAINED = "untrained", "new when this training began"

_CREATED = "created here"
NO_HEAD = "it has no head"
"""Why a model's classes have no names, and nothing is assumed of them."""


@dataclass(frozen=True)
class Origin:
    """Everything about a model that its weights and its config do not hold."""

    source: Fact[str] = field(default_factory=lambda: fact(_CREATED))
    """Library, name or file, and family."""
    mean: Fact[tuple[float, ...]] = field(default_factory=lambda: assumed(HALF))
    """Per channel, of pixels in [0, 1]."""
    std: Fact[tuple[float, ...]] = field(default_factory=lambda: assumed(HALF))
    resize: Fact[str] = field(default_factory=lambda: assumed("short"))
    """`short`: the short side to image size / crop, then a centre crop; `squash`: straight to the image size."""
    crop: Fact[float] = field(default_factory=lambda: assumed(1.0))
    """Share of the resized image that the centre crop keeps, per side."""
    interpolation: Fact[str] = field(default_factory=lambda: assumed("bicubic"))
    classes: Fact[tuple[str, ...]] = field(default_factory=lambda: assumed(()))
    """Class names in the order of the logits; empty: unnamed."""
    activation: Fact[str] = field(default_factory=lambda: fact("gelu"))
    norm_epsilon: Fact[float] = field(default_factory=lambda: fact(1e-6))
    heads: Fact[int] = field(default_factory=lambda: fact(0))
    """Attention heads, which no key of a weights file tells; 0: a model without attention."""
    thresholds: tuple[float, ...] = ()
    """Several labels a picture: the probability from which each class is an answer, each on its own. Empty: one class a picture."""
    parity: dict[str, float] = field(default_factory=dict)
    """Largest relative difference from the source per layer, where the import was proved."""
    changes: tuple[Change, ...] = ()
    """What was altered on the way in: positions resized, head replaced, channels adapted. Plain text becomes a `Change`."""
    data: dict[str, Any] = field(default_factory=dict)
    """What it learnt from, where it was trained here: its DataConfig as plain values. Scored on the same data, it knows its test split."""

    def __post_init__(self) -> None:
        """What a file says of itself is what it must be, or nothing is made of it."""
        for name, fits in _FITTING.items():
            fact = getattr(self, name)
            if not isinstance(fact, Fact) or not fits(fact.value):
                value = fact.value if isinstance(fact, Fact) else fact
                raise WeightsError(f"a model whose {name} is {_short(value)}", "the file that says so is damaged, or not of a model")
        changes = self.changes if isinstance(self.changes, tuple) else (self.changes,)
        object.__setattr__(self, "changes", tuple(map(Change.read, changes)))
        if not isinstance(self.thresholds, tuple) or not all(_is_number(value) and 0 <= value <= 1 for value in self.thresholds):
            raise WeightsError("a model whose thresholds are no probabilities", "the file that says so is damaged, or not of a model")
        if not isinstance(self.data, dict):
            raise WeightsError(f"a model whose data is {_short(self.data)}", "the file that says so is damaged, or not of a model")
        if not isinstance(self.parity, dict) or not all(_is_number(value) for value in self.parity.values()):
            raise WeightsError("a model whose parity is no table of numbers", "the file that says so is damaged, or not of a model")

    @property
    def is_trained(self) -> bool:
        """Whether its weights come from somewhere, or have been trained here; else they are as a model begins."""
        return self.source.value != _CREATED or bool(self.data)

    def assumptions(self) -> list[str]:
        """One line for each assumed field that matters when the model is used."""
        return [
            f"{f.name} = {_brief(fact.value)} (assumed{': ' + fact.note if fact.note else ''})"
            for f in fields(self)
            if isinstance(fact := getattr(self, f.name), Fact) and not fact.declared
        ]

    @property
    def multi_label(self) -> bool:
        """Whether the model gives a picture several labels, each with a probability of its own, or none."""
        return bool(self.thresholds)

    def with_change(self, text: str, seed: int | None = None) -> Origin:
        """`seed`: of the new weights that came with it."""
        return replace(self, changes=(*self.changes, Change(text, seed)))

    def trained(self) -> Origin:
        """The same of a model that is trained from here on: what is new in it is untrained no longer."""
        return replace(self, changes=tuple(Change(change.what, change.seed, change.seed is not None) for change in self.changes))

    def class_name(self, index: int) -> str:
        names = self.classes.value
        return names[index] if 0 <= index < len(names) else f"class {index}"

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Fact):
                plain = list(value.value) if isinstance(value.value, tuple) else value.value
                out[f.name] = {"value": plain, "declared": value.declared, "note": value.note}
            elif f.name == "changes":
                out[f.name] = [change.to_json() for change in value]
            else:
                out[f.name] = list(value) if isinstance(value, tuple) else value
        return out

    @classmethod
    def from_dict(cls, data: Any) -> Origin:
        values: dict[str, Any] = {}
        if not isinstance(data, dict):
            raise WeightsError(f"a model whose origin is {_short(data)}", "the file that says so is damaged, or not of a model")
        for f in fields(cls):
            if f.name not in data:
                continue
            value = data[f.name]
            if isinstance(value, dict) and "value" in value and {"declared", "known"} & value.keys():  # `known` until version 0.2
                inner = tuple(value["value"]) if isinstance(value["value"], list) else value["value"]
                value = Fact(inner, bool(value.get("declared", value.get("known"))), str(value.get("note", "")))
            elif isinstance(value, list):
                value = tuple(value)
            values[f.name] = value
        return cls(**values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_numbers(values: Any) -> bool:
    return isinstance(values, tuple) and len(values) > 0 and all(map(_is_number, values))


_FITTING: dict[str, Callable[[Any], bool]] = {
    "source": _is_text,
    "mean": _are_numbers,
    "std": lambda values: _are_numbers(values) and min(values) > 0,
    "resize": lambda value: value in ("short", "squash"),
    "crop": lambda value: _is_number(value) and 0 < value <= 1,
    "interpolation": _is_text,
    "classes": lambda names: isinstance(names, tuple) and all(map(_is_text, names)),
    "activation": _is_text,
    "norm_epsilon": _is_number,
    "heads": lambda value: isinstance(value, int) and value >= 0,
}
"""What each fact must be."""


def _short(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 80 else words[:79] + "…"


def _brief(value: Any) -> str:
    """A value in a line: of many class names the first and how many."""
    if isinstance(value, tuple) and (not value or isinstance(value[0], str)):
        return f"{', '.join(value[:2])}, … ({len(value)} names)" if value else "unnamed"
    return str(value)
