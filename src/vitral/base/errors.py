"""Errors that a user can act on: one line that says what is wrong, where, and what to do next."""

from __future__ import annotations


class VitralError(Exception):
    """Something failed. `message` says what and where, `hint` what to do next."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = " ".join(message.split())
        self.hint = " ".join(hint.split())
        super().__init__(str(self))

    def __str__(self) -> str:
        return f"{self.message}: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        # Errors travel between processes (worker pools, Ray): rebuild from the two parts.
        return type(self), (self.message, self.hint)


class UsageError(VitralError):
    """The caller asked for something that does not exist or does not fit: exit code 2."""

    exit_code = 2


class ConfigError(UsageError, ValueError):
    """A combination of settings that cannot work, refused by name."""


class Stopped(VitralError):
    """A signal asked to stop, and everything is saved: not a failure to try again."""


class DataError(VitralError):
    """Pictures or labels that cannot be used."""


class WeightsError(VitralError):
    """A weights file that is damaged, unknown, or does not fit the model."""


class ParityError(WeightsError):
    """An imported model does not compute what its source computes."""


def one_of(what: str, value: str, known: object) -> UsageError:
    """The error for an unknown name, with the nearest known names."""
    import difflib

    names = [str(name) for name in known]  # type: ignore[union-attr]
    near = difflib.get_close_matches(str(value), names, n=3, cutoff=0.5)
    listed = ", ".join(near or names[:20])
    return UsageError(
        f"unknown {what} {value!r}", f"{'did you mean' if near else 'use one of'} {listed}?" if near else f"use one of {listed}"
    )
