"""Settings held in dataclasses: does a value fit its type, and is it one that can be meant?"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import types
import typing
from typing import Any, Literal

from vitral.base.errors import ConfigError

LARGEST_INPUT, LARGEST_TABLE = 2**28, 2**26
"""Numbers in one image, and in a table of fixed positions: a config from a file must not take the memory by naming a size."""


def fit_value(hint: Any, value: Any) -> tuple[Any] | None:
    """(value as the hint wants it,) or None when it does not fit."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return next((fitted for part in arguments if (fitted := fit_value(part, value))), None)
    if origin is Literal:
        return (value,) if value in arguments else None
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return None
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        parts = [fit_value(kind, item) for kind, item in zip(kinds, value, strict=False)]
        return (tuple(part[0] for part in parts if part),) if len(kinds) == len(value) and all(parts) else None
    if hint is type(None):
        return (None,) if value is None else None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return (float(value),)
    if hint is int and isinstance(value, bool):
        return None
    return (value,) if isinstance(value, hint) else None


def read_value(hint: Any, written: str) -> tuple[Any] | None:
    """(what a word on the command line means for a setting of this type,) or None when it means nothing."""
    words = {"true": True, "false": False, "none": None, "yes": True, "no": False}
    readings: list[Any] = [words[written.lower()]] if written.lower() in words else []
    with contextlib.suppress(ValueError):
        readings.append(float(written) if written.startswith(".") else json.loads(f"[{written}]" if "," in written else written))
    if readings and isinstance(readings[-1], int | float) and not isinstance(readings[-1], bool):
        readings += [[readings[-1]], [readings[-1], readings[-1]]]
    return next((fitted for reading in (*readings, written) if (fitted := fit_value(hint, reading))), None)


def say_kind(hint: Any) -> str:
    """A type in words."""
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    return getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint)


def lists_as_tuples(config: Any) -> None:
    """JSON has lists where a config, which nothing changes, has tuples."""
    for field in dataclasses.fields(config):
        if isinstance(value := getattr(config, field.name), list):
            object.__setattr__(config, field.name, tuple(value))


def check_values(config: Any) -> None:
    """Numbers must be finite, choices among those named, and no number a word."""
    for name, hint in typing.get_type_hints(type(config)).items():
        value = getattr(config, name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name} = {value}", "use a finite number")
        choices: tuple[Any, ...] = ()
        for part in (hint, *typing.get_args(hint)):
            if typing.get_origin(part) is Literal:
                choices = typing.get_args(part)
        if choices and value is not None and value not in choices:
            raise ConfigError(f"{name} = {value!r} is unknown", f"use one of {', '.join(map(str, choices))}")
        if isinstance(value, str) and fit_value(hint, value) is None:
            raise ConfigError(f"{name} = {value!r} is a word", f"give it as {say_kind(hint)}")


def at_least(config: Any, name: str, least: int) -> None:
    value = getattr(config, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} = {value!r}", f"it must be a whole number of at least {least}")


def at_most(what: str, numbers: int, most: int) -> None:
    if numbers > most:
        raise ConfigError(f"{what} has {numbers:,} numbers", f"it must have at most {most:,}")


def check_share(config: Any, name: str, closed: bool = False) -> None:
    value = getattr(config, name)
    if not 0 <= value < 1 and not (closed and value == 1):
        raise ConfigError(f"{name} = {value} is not a share", "use a number from 0 to 1")
