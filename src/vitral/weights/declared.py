"""What a source or the user declares about weights beyond their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vitral.base.origin import Fact, fact


@dataclass(frozen=True)
class Declared:
    """Values that the source itself or the user gives, each with where it comes from."""

    config: dict[str, Fact[Any]] = field(default_factory=dict)
    """ModelConfig fields: heads, activation, norm_epsilon, image_size, pool, …"""
    origin: dict[str, Fact[Any]] = field(default_factory=dict)
    """Origin fields: mean, std, resize, crop, interpolation, classes."""

    def or_else(self, other: Declared) -> Declared:
        """Merges the two. Values of `self` win."""
        return Declared({**other.config, **self.config}, {**other.origin, **self.origin})


def declare(note: str, config: Mapping[str, Any] | None = None, origin: Mapping[str, Any] | None = None) -> Declared:
    """Facts with `note` as their source; None leaves a value out."""
    return Declared(
        {name: fact(value, note) for name, value in (config or {}).items() if value is not None},
        {name: fact(value, note) for name, value in (origin or {}).items() if value is not None},
    )


def pair(size: Any) -> tuple[int, int]:
    """One number for both sides, or height and width."""
    return (int(size), int(size)) if isinstance(size, int | float) else (int(size[0]), int(size[1]))
