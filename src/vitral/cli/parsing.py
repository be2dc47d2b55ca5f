"""Flags by tyro, with our kind of error: one line that says what to do next."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from vitral.base.errors import UsageError, one_of

T = TypeVar("T")

KINDS = {"INT": "a whole number", "FLOAT": "a number", "INT INT": "two whole numbers", "[INT [INT ...]]": "one or more whole numbers"}
"""tyro's words for types, in ours."""


def parse(kind: type[T], arguments: list[str], program: str, description: str) -> T:
    """An instance of the dataclass `kind` from the command line; `--help` prints and leaves with SystemExit(0)."""
    import tyro

    shown = io.StringIO()
    try:
        with contextlib.redirect_stderr(shown):
            return tyro.cli(
                kind,
                args=spoken(kind, arguments),
                prog=program,
                description=description,
                config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        message, advice = one_line(shown.getvalue(), spellings(kind))
        raise UsageError(message, f"{advice + '; ' if advice else ''}{program} --help shows examples and all flags") from None


def run_command(verb: str, commands: Mapping[str, Callable[[list[str]], int]], examples: str, arguments: list[str]) -> int:
    """Give the rest of the line to the command of a verb that has several: `vitral data list`."""
    if not arguments:
        raise UsageError(f"{verb} needs a command", f"use {', '.join(commands)}; vitral {verb} --help shows examples")
    if arguments[0] in ("-h", "--help"):
        print(f"usage: vitral {verb} {{{','.join(commands)}}} …\n\n{examples}")
        return 0
    if arguments[0] not in commands:
        raise one_of(f"command of {verb}", arguments[0], commands)
    return commands[arguments[0]](arguments[1:])


def spoken(kind: type[Any], arguments: list[str]) -> list[str]:
    """What people write, as tyro wants it.

    `--ema none` is `--ema None`, for flags that may have no value and know no none of their own. A switch that is on already may be
    switched on: the same command with --resume takes its defaults from the run.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    optional, said = set(), set()
    for name, flag, inner, _ in _flags(kind):
        choices = typing.get_args(inner)
        if type(None) in choices and not any("none" in typing.get_args(choice) for choice in choices):
            optional.add(flag)
        elif inner is bool:
            said.add(flag if defaults.get(name) is True else f"--no-{flag.removeprefix('--')}")
    out = []
    for before, word in zip(["", *arguments], arguments, strict=False):
        flag, sign, value = word.partition("=")
        if word.lower() == "none" and before in optional:
            word = "None"
        elif sign and flag in optional and value.lower() == "none":
            word = f"{flag}=None"
        if word not in said:
            out.append(word)
    return out


def _flags(kind: type[Any]) -> Iterator[tuple[str, str, Any, list[Any]]]:
    """(field, flag as it is documented, type, what is noted beside the type) of each field that is no positional argument."""
    import tyro

    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        inner, *extras = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        if tyro.conf.Positional not in extras:
            flag = next((extra.name for extra in extras if getattr(extra, "name", None)), name.replace("_", "-"))
            yield name, f"--{flag}", inner, extras


def spellings(kind: type[Any]) -> dict[str, str]:
    """Every way to write a flag → the documented one."""
    out: dict[str, str] = {}
    for _, flag, _, extras in _flags(kind):
        out |= {other: flag for extra in extras for other in getattr(extra, "aliases", None) or ()} | {flag: flag}
    return out


def one_line(box: str, known: Mapping[str, str]) -> tuple[str, str]:
    """What tyro says in its frame, as (what is wrong, what to do), in the words of a user. known: as `spellings` has them.

    tyro has these errors as data, too, but only in `tyro._errors`, which asks whoever uses it to pin an exact version. What the frame
    says is not promised either, but where it changes, the user still gets it in one line.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [re.sub(r"^[│|] ?|[│|\s]+$", "", line) for line in plain.splitlines() if not line.startswith(("╭", "╰"))]
    parts = [part.strip("\n") for part in re.split(r"\n *[─-]{5,} *(?=\n|$)", "\n".join(lines))]
    # Without a frame (no UTF-8) the title comes as a part of its own.
    body = next((part for part in parts if ":" in part or "." in part), parts[0])
    words = " ".join(body.split())
    rest = "\n".join(parts)
    if found := re.match(r"Unrecognized options: (\S+?),?(?: |$)", words):
        flag = found[1]
        if not flag.startswith("-"):
            return f"{flag!r} is one word too many", ""
        near = difflib.get_close_matches(flag.partition("=")[0], known, n=2, cutoff=0.7)
        return f"unknown flag {flag}", f"did you mean {' or '.join(dict.fromkeys(known[name] for name in near))}?" if near else ""
    if words.startswith("Missing from"):
        names = re.findall(r"^ +([A-Z_]+)$", body, re.MULTILINE)
        return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} missing", ""
    if found := re.match(r"Missing value for argument '([^']+)'", words):
        name = found[1]
        return (f"{name} has no value", "write it after the flag") if name.startswith("-") else (f"{name.upper()} is missing", "")
    if found := re.match(r"invalid choice '([^']*)' for argument '([^']+)'\. Expected one of \(([^)]*)\)", words):
        choices = found[3].replace("'", "").rstrip(",")
        near = difflib.get_close_matches(found[1], choices.split(", "), n=1)
        return f"{found[2]} cannot be {found[1]!r}", f"did you mean {near[0]}? It is one of {choices}" if near else f"use {choices}"
    if found := re.match(r"Error parsing (\S+):", words):
        flag, value = found[1], re.search(r"'([^']*)'\]?\.?(?: |$)", words)
        kind = re.search(rf"^ *{re.escape(flag)} (.+)$", rest, re.MULTILINE)
        wanted = [KINDS.get(part.strip("{}"), part.strip("{}")) for part in kind[1].split("|")] if kind else []
        if value and wanted:
            return f"{flag} cannot be {value[1]!r}", f"use {' or '.join(reversed(wanted))}"
    return words.rstrip(".") or "the arguments cannot be understood", ""
