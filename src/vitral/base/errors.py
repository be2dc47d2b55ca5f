"""Errors that a user can act on: one line that says what is wrong, where, and what to do next.

Each is also the built-in that a Python user would catch: a missing file a FileNotFoundError, an unknown name a KeyError,
a wrong value a ValueError. VitralError itself is never raised.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from os import PathLike

from vitral.base.text import clean


class VitralError(Exception):
    """Something failed. `message` says what and where, `hint` what to do next."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        self.message: str = clean(" ".join(message.split()))
        self.hint: str = clean(" ".join(hint.split()))
        super().__init__(str(self))

    def __str__(self) -> str:
        return f"{self.message}: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        # Errors travel between processes (worker pools, Ray): rebuild from the two parts.
        return type(self), (self.message, self.hint)


class UsageError(VitralError, ValueError):
    """The caller asked for something that does not exist or does not fit: exit code 2."""

    exit_code = 2


class ConfigError(UsageError):
    """A combination of settings that cannot work, refused by name."""


class UnknownNameError(UsageError, KeyError):
    """A name that is not in the list."""


class OutOfRangeError(UsageError, IndexError):
    """A number beyond the last one."""


class FailedError(VitralError, RuntimeError):
    """It was asked for rightly and still went wrong."""


class Stopped(VitralError, RuntimeError):
    """A signal asked to stop, and everything is saved: not a failure to try again."""


class DataError(VitralError, ValueError):
    """Images or labels that cannot be used."""


class WeightsError(VitralError, ValueError):
    """A weights file that is damaged, unknown, or does not fit the model."""


class ParityError(WeightsError):
    """An imported model does not compute what its source computes."""


class FileError(VitralError, OSError):
    """A file that the system does not let us read or write."""


class MissingError(DataError, WeightsError, FileNotFoundError):
    """A path where nothing is, whatever was to be read from it."""

    errno: int | None = errno.ENOENT


class NotInstalledError(VitralError, ImportError):
    """A library that only some things need, and that is not there or does not fit."""


def one_of(what: str, value: str, choices: Iterable[object]) -> UnknownNameError:
    """The error for an unknown name, with the nearest known names."""
    names = [str(name) for name in choices]
    near = difflib.get_close_matches(str(value), names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"use one of {', '.join(names[:20])}"
    return UnknownNameError(f"unknown {what} {value!r}", hint)


def need_model(thing: object) -> None:
    """Refuse what is no model, such as the place of one: a function that takes a model takes a live one."""
    if not hasattr(thing, "config"):
        what = repr(str(thing)) if isinstance(thing, str | PathLike) else f"what is given first, of type {type(thing).__name__},"
        raise UsageError(f"{what} is no model", "open a place with vitral.load, a live module of another library with vitral.adopt")


def out_of_range(what: str, number: object, count: int, owner: str = "this model") -> OutOfRangeError:
    """The error for a number that nothing has: `block 12 does not exist: this model has blocks 0 to 11`."""
    plural = f"{what}es" if what.endswith(("s", "x", "ch")) else f"{what}s"
    return OutOfRangeError(f"{what} {number} does not exist", f"{owner} has {plural} 0 to {count - 1}")
