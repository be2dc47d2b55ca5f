"""The words of a verb, read here with our kind of error: one line that says what to do next. tyro writes `--help`.

tyro could read them too, but its errors are a box of text that differs between its versions, as does which word goes where.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import re
import typing
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from vitral.base.errors import UsageError, one_of

T = TypeVar("T")

KINDS: dict[type, str] = {int: "whole number", float: "number"}
COUNTS: dict[float, str] = {1: "a", 2: "two", math.inf: "one or more"}
FLAG = re.compile(r"-(?!$|\.?\d)")


def parse(kind: type[T], arguments: list[str], program: str, description: str) -> T:
    """An instance of the dataclass `kind` from the command line; `--help` prints and leaves with SystemExit(0)."""
    if "-h" in arguments or "--help" in arguments:
        import tyro

        config = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
        return tyro.cli(kind, args=["--help"], prog=program, description=description, config=config)
    try:
        values = _read([*_slots(kind)], deque(arguments))
    except UsageError as error:
        advice = f"{error.hint}; " if error.hint else ""
        raise UsageError(error.message, f"{advice}{program} --help shows examples and all flags") from None
    return kind(**values)


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


def spellings(kind: type[Any]) -> dict[str, str]:
    """Every way to write a flag → the documented one."""
    return {word: slot.name for slot in _slots(kind) if not slot.positional for word in (*slot.aliases, slot.name)}


@dataclasses.dataclass(frozen=True)
class _Slot:
    """A flag or a positional argument. `most`: words that it takes; 0 is a switch, infinity one or more."""

    field: str
    name: str  # as users see it: --image-size, MODEL
    aliases: tuple[str, ...]
    positional: bool
    kinds: tuple[Any, ...]  # the types of one word, in the order in which they are tried
    most: float
    default: bool  # whether it has one

    def value(self, words: list[str]) -> Any:
        if not words:
            raise UsageError(f"{self.name} has no value", "write it after the flag")
        values = tuple(map(self._one, words))
        if self.most == 1 or values == (None,):
            return values[0]
        return values if self.most in (len(values), math.inf) else self._refuse(" ".join(words))

    def _one(self, word: str) -> Any:
        for kind in self.kinds:
            if typing.get_origin(kind) is Literal:
                if word in typing.get_args(kind):
                    return word
            elif kind is not NoneType:
                with contextlib.suppress(ValueError):
                    return kind(word)
            elif word.lower() == "none":
                return None
        return self._refuse(word)

    def _refuse(self, word: str) -> NoReturn:
        choices = [choice for kind in self.kinds for choice in typing.get_args(kind)]
        wanted = ", ".join(choices) or f"{COUNTS[self.most]} {KINDS[self.kinds[-1]]}{'s' * (self.most > 1)}"
        if NoneType in self.kinds:
            wanted += ", None" if choices else " or None"
        near = difflib.get_close_matches(word, choices, n=1)
        raise UsageError(f"{self.name} cannot be {word!r}", f"did you mean {near[0]}? It is one of {wanted}" if near else f"use {wanted}")


def _slots(kind: type[Any]) -> Iterator[_Slot]:
    import tyro

    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint, missing = hints[field.name], dataclasses.MISSING
        inner, *extras = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        positional = tyro.conf.Positional in extras
        noted = [note for extra in extras if (note := getattr(extra, "metavar" if positional else "name", None))]
        name = noted[0] if noted else field.name
        parts = typing.get_args(inner) if NoneType in typing.get_args(inner) else (inner,)
        # `none` may be a choice, and any word is a str.
        kinds = sorted(parts, key=lambda part: (typing.get_origin(part) is not Literal, part is not NoneType))
        most: float = int(inner is not bool)
        if typing.get_origin(kinds[-1]) is tuple:
            items = typing.get_args(kinds[-1])
            kinds[-1], most = items[0], math.inf if items[-1] is Ellipsis else len(items)
        name = name if positional else f"--{name.replace('_', '-')}"
        aliases = tuple(alias for extra in extras for alias in getattr(extra, "aliases", None) or ())
        default = field.default is not missing or field.default_factory is not missing
        yield _Slot(field.name, name, aliases, positional, tuple(kinds), most, default)


def _read(slots: list[_Slot], words: deque[str]) -> dict[str, Any]:
    """Field → value, of all that is written."""
    flags = {word: slot for slot in slots if not slot.positional for word in (*slot.aliases, slot.name)}
    switched_off = {f"--no-{slot.name[2:]}": slot for slot in flags.values() if not slot.most}
    positional = [slot for slot in slots if slot.positional]
    needed = sum(slot.most == 1 and not slot.default for slot in positional)
    values: dict[str, Any] = {slot.field: () for slot in positional if slot.most == math.inf and not slot.default}
    loose: list[str] = []
    while words:
        word = words.popleft()
        if word == "--":
            loose += words
            break
        if not FLAG.match(word):
            loose.append(word)
            continue
        name, sign, first = word.partition("=")
        name = name.replace("_", "-")
        slot = flags.get(name) or switched_off.get(name)
        if slot is None:
            near = dict.fromkeys(flags[found].name for found in difflib.get_close_matches(name, flags, n=2, cutoff=0.7))
            raise UsageError(f"unknown flag {word}", f"did you mean {' or '.join(near)}?" if near else "")
        if not slot.most:
            if sign:
                raise UsageError(f"{name} takes no value", f"write {slot.name} or --no-{slot.name[2:]}")
            values[slot.field] = name in flags
            continue
        taken = [first] if sign else []
        while words and len(taken) < slot.most and not FLAG.match(words[0]):
            if slot.most == math.inf and taken and sum(not FLAG.match(word) for word in words) <= needed - len(loose):
                break  # the rest is the positional arguments'
            taken.append(words.popleft())
        values[slot.field] = slot.value(taken)
    for slot in positional:
        count = len(loose) if slot.most == math.inf else 1
        if taken := loose[:count]:
            values[slot.field] = slot.value(taken)
        loose = loose[count:]
    if missing := [slot.name for slot in positional if slot.most == 1 and not slot.default and slot.field not in values]:
        raise UsageError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if loose:
        raise UsageError(f"{loose[0]!r} is one word too many")
    return values
