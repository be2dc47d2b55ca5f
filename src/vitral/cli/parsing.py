"""The one parser of the command line: the flags of a verb → the values that were typed, or its help.

An error is one line that says what to do next. Help has two levels: `--help` shows the common flags, `--help-all` all of them in full.
argparse and tyro print errors of their own, and give a list of values the words of the positional argument after it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import re
import textwrap
import typing
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from types import NoneType
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from vitral.base.errors import UsageError, one_of
from vitral.config.flags import Flag, documents

T = TypeVar("T")
Command = tuple[type[Any], str, Callable[[Any], int]]
"""Of a verb with commands: the dataclass of its flags, its help, what it does."""

_KINDS: dict[type, str] = {int: "whole number", float: "number"}
_COUNTS: dict[float, str] = {1: "a", 2: "two", math.inf: "one or more"}
_FLAG = re.compile(r"-(?!$|\.?\d)")
_HELP = ("-h", "--help", "--help-all")
_WIDTH, _COLUMN, _WHOLE = 80, 21, 45
"""Of the help: characters in a line, where the text of a flag begins, lines up to which it is shown in full."""


def parse(kind: type[T], arguments: list[str], program: str, description: str) -> T:
    """An instance of the dataclass `kind` from the command line; `--help` prints and leaves with SystemExit(0)."""
    return kind(**read(flags_of(kind), arguments, program, description))


def read(flags: Sequence[Flag], arguments: list[str], program: str, description: str) -> dict[str, Any]:
    """Field → value, of all that is typed."""
    if any(word in arguments for word in _HELP):
        print(_help(flags, program, description, "--help-all" in arguments))
        raise SystemExit(0)
    try:
        return _read(flags, deque(arguments))
    except UsageError as error:
        advice = f"{error.hint}; " if error.hint else ""
        raise UsageError(error.message, f"{advice}{program} --help shows examples and flags") from None


def run_command(verb: str, commands: Mapping[str, Command], examples: str, arguments: list[str]) -> int:
    """Run one of a verb's commands with its flags: `vitral data list --json`."""
    if not arguments:
        raise UsageError(f"{verb} needs a command", f"use {', '.join(commands)}; vitral {verb} --help shows examples")
    name, *rest = arguments
    if name in _HELP:
        print("\n\n".join([f"usage: vitral {verb} {{{','.join(commands)}}} …", *_paragraphs(examples)]))
        return 0
    if name not in commands:
        raise one_of(f"command of {verb}", name, commands)
    kind, description, function = commands[name]
    return function(parse(kind, rest, f"vitral {verb} {name}", description))


def flags_of(kind: type[Any]) -> list[Flag]:
    """The flags of a dataclass. `Annotated[str, "MODEL"]` is a positional argument, `Annotated[str, "--from"]` a flag of that name.

    What a class inherits is rare, in a group that is called after the class that has it.
    """
    owners = {name: owner for owner in reversed(kind.__mro__) for name in vars(owner).get("__annotations__", ())}
    flags = []
    for field in dataclasses.fields(kind):
        hint, *names = typing.get_args(hint) if typing.get_origin(hint := _hints(kind)[field.name]) is Annotated else (hint,)
        names = names or [f"--{field.name.replace('_', '-')}"]
        names = names[0].split() if names[0].startswith("-") else names
        default = field.default if field.default_factory is MISSING else field.default_factory()
        owner = owners[field.name]
        group = "Arguments" if not names[0].startswith("-") else "Flags" if owner is kind else (owner.__doc__ or "").rstrip(".")
        text = documents(owner).get(field.name, "")
        flags.append(Flag(field.name, tuple(names), hint, default, text, group, owner is kind or group == "Arguments"))
    return sorted(flags, key=lambda flag: (not flag.positional, flag.group != "Flags"))


def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _read(flags: Sequence[Flag], words: deque[str]) -> dict[str, Any]:
    by_name = {name: flag for flag in flags if not flag.positional for name in flag.names}
    switched_off = {f"--no-{flag.names[0][2:]}": flag for flag in by_name.values() if not flag.most}
    positional = [flag for flag in flags if flag.positional]
    needed = sum(flag.most == 1 and flag.default is MISSING for flag in positional)
    values: dict[str, Any] = {flag.field: () for flag in positional if flag.most == math.inf and flag.default is MISSING}
    loose: list[str] = []
    while words:
        word = words.popleft()
        if word == "--":
            loose += words
            break
        if not _FLAG.match(word):
            loose.append(word)
            continue
        name, sign, first = word.partition("=")
        name = name.replace("_", "-")
        flag = by_name.get(name) or switched_off.get(name)
        if flag is None:
            near = dict.fromkeys(by_name[match].names[0] for match in difflib.get_close_matches(name, by_name, n=2, cutoff=0.7))
            raise UsageError(f"unknown flag {word}", f"did you mean {' or '.join(near)}?" if near else "")
        if not flag.most:
            if sign:
                raise UsageError(f"{name} takes no value", f"write {flag.names[0]} or --no-{flag.names[0][2:]}")
            values[flag.field] = name in by_name
            continue
        if flag.alone is not None and not sign and not (words and words[0] in flag.choices):
            values[flag.field] = flag.alone
            continue
        taken = [first] if sign else []
        while words and len(taken) < flag.most and not _FLAG.match(words[0]):
            if flag.most == math.inf and taken and sum(not _FLAG.match(word) for word in words) <= needed - len(loose):
                break  # the rest is the positional arguments'
            taken.append(words.popleft())
        value = _value(flag, taken)
        adds = flag.most == math.inf and NoneType not in flag.kinds  # --set a=1 --set b=2 has both
        values[flag.field] = (*values.get(flag.field, ()), *value) if adds else value
    for flag in positional:
        count = len(loose) if flag.most == math.inf else 1
        if taken := loose[:count]:
            values[flag.field] = _value(flag, taken)
        loose = loose[count:]
    required = (flag for flag in positional if flag.default is MISSING and flag.field not in values)
    required = [*required, *(flag for flag in flags if not flag.positional and flag.default is MISSING and flag.field not in values)]
    if missing := [flag.names[0] for flag in required]:
        raise UsageError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if loose:
        raise UsageError(f"{loose[0]!r} is one word too many")
    return values


def _value(flag: Flag, words: list[str]) -> Any:
    if not words:
        raise UsageError(f"{flag.names[0]} has no value", "write it after the flag")
    values = tuple(_word(flag, word) for word in words)
    if flag.most == 1 or values == (None,):
        return values[0]
    return values if flag.most in (len(values), math.inf) else _refuse(flag, " ".join(words))


def _word(flag: Flag, word: str) -> Any:
    for kind in flag.kinds:
        if typing.get_origin(kind) is Literal:
            if word in typing.get_args(kind):
                return word
        elif kind is not NoneType:
            with contextlib.suppress(ValueError):
                return kind(word)
        elif word.lower() == "none":
            return None
    return _refuse(flag, word)


def _refuse(flag: Flag, word: str) -> NoReturn:
    choices = flag.choices
    expected = ", ".join(choices) or f"{_COUNTS[flag.most]} {_KINDS[flag.kinds[-1]]}{'s' * (flag.most > 1)}"
    if NoneType in flag.kinds:
        expected += ", None" if choices else " or None"
    near = difflib.get_close_matches(word, choices, n=1)
    hint = f"did you mean {near[0]}? It is one of {expected}" if near else f"use {expected}"
    raise UsageError(f"{flag.names[0]} cannot be {word!r}", hint)


def _help(flags: Sequence[Flag], program: str, description: str, everything: bool) -> str:
    parts = _paragraphs(description)
    whole = "\n\n".join([usage(program, flags), *parts, *_groups(flags, True)])
    if everything or whole.count("\n") < _WHOLE:
        return whole
    more = sum(not flag.common for flag in flags)
    rest = f"{program} --help-all shows " + (f"{more} more flags and " * bool(more)) + "all about each flag."
    return "\n\n".join([usage(program, flags), *parts, *_groups([flag for flag in flags if flag.common], False), rest])


def usage(program: str, flags: Sequence[Flag]) -> str:
    return " ".join(["usage:", program, *(flag.names[0] for flag in flags if flag.positional), *["[flags]"] * bool(flags)])


def _groups(flags: Sequence[Flag], in_full: bool) -> list[str]:
    groups: dict[str, list[str]] = {}
    for flag in flags:
        groups.setdefault(flag.group, []).append(_row(flag, in_full))
    return ["\n".join([f"{group}:", *rows]) for group, rows in groups.items()]


def _row(flag: Flag, in_full: bool) -> str:
    value = "" if flag.positional or not flag.most else {int: " N", float: " X"}.get(flag.kinds[-1], "" if flag.choices else " NAME")
    name = f"  {flag.names[0]}{value}{' …' if value and flag.most > 1 else ''}"
    notes = [", ".join(flag.choices)] if flag.choices else []
    if flag.default not in (None, MISSING, False, (), "") and not flag.positional:
        default = " ".join(map(str, flag.default)) if isinstance(flag.default, tuple) else flag.default
        notes.append(f"default {default}")
    text = " ".join([flag.text if in_full else short(flag.text), *([f"({'; '.join(notes)})"] if notes else [])])
    start = f"{name:<{_COLUMN}}" if len(name) < _COLUMN - 1 else f"{name}\n{' ' * _COLUMN}"
    lines = textwrap.wrap(text, _WIDTH - _COLUMN, break_long_words=False, break_on_hyphens=False)
    return start + f"\n{' ' * _COLUMN}".join(lines)


def short(text: str) -> str:
    """The beginning of a text, up to its first stop."""
    first = re.split(r"(?<=[^.])[.;](?: |$)", text)[0]
    return first if len(first) <= 100 else first[:99].rsplit(" ", 1)[0] + " …"


def _paragraphs(text: str) -> list[str]:
    """Prose is wrapped; examples stay as they are."""
    parts = (part if part.startswith("Examples:") else " ".join(part.split()) for part in text.strip().split("\n\n"))
    return [part if "\n" in part else textwrap.fill(part, _WIDTH, break_long_words=False, break_on_hyphens=False) for part in parts]
