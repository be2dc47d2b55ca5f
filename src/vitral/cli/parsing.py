"""Flags by tyro, with our kind of error: one line that says what to do next."""

from __future__ import annotations

import contextlib
import io
import re
from typing import TypeVar

from vitral.base.errors import UsageError

T = TypeVar("T")


def parse(kind: type[T], arguments: list[str], program: str, description: str) -> T:
    """An instance of the dataclass `kind` from the command line; `--help` prints and leaves with SystemExit(0)."""
    import tyro

    shown = io.StringIO()
    try:
        with contextlib.redirect_stderr(shown):
            return tyro.cli(
                kind,
                args=arguments,
                prog=program,
                description=description,
                config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UsageError(one_line(shown.getvalue()), f"{program} --help shows examples and all flags") from None


def one_line(box: str) -> str:
    """The message inside the frame that tyro draws."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [re.sub(r"^[│╭╰|\s]+|[│╮╯|\s]+$", "", line) for line in plain.splitlines()]
    kept = [
        line
        for line in lines
        if line and not set(line) <= set("─- ") and not line.startswith(("For full help", "─")) and "─────" not in line
    ]
    message = re.split(r" Argument helptext:| ?Perhaps you meant:", " ".join(kept))[0]
    return message.rstrip(".") or "the arguments cannot be understood"
