"""What a command line of Vitral means, without running it."""

from __future__ import annotations

from typing import Any

from vitral.cli import train
from vitral.cli.completion import commands
from vitral.cli.parsing import read
from vitral.config.flags import Flag


def flags_of_line(verb: str, words: list[str]) -> tuple[list[Flag], list[str]]:
    """The flags of a command, and the words that are left."""
    of_verb = commands(verb)
    return (of_verb[""][0], words) if "" in of_verb else (of_verb[words[0]][0], words[1:])


def parse_line(verb: str, words: list[str]) -> dict[str, Any]:
    """The values that are typed after the verb; a UsageError where it would refuse them."""
    if verb in ("train", "plan", "pretrain"):
        return train.parse(words, verb)[1]
    flags, left = flags_of_line(verb, words)
    return read(flags, left, f"vitral {verb}", "")


def spellings(flags: list[Flag]) -> set[str]:
    """Every way to write a flag."""
    return {name for flag in flags if not flag.positional for name in flag.names}
