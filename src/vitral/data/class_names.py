"""Which of a model's classes a data set's classes are: names decide, not numbers."""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Sequence

import numpy as np

from vitral.base.errors import UsageError
from vitral.base.progress import say
from vitral.base.text import few

_IMAGENET = 1000


def match_classes(who: str, ours: Sequence[str], classes: int, data: str, theirs: Sequence[str]) -> np.ndarray:
    """The number that `who` gives each of `theirs`; refused by name where one of them is not its own.

    A model without names, and folders that are numbered or have WordNet's names (ImageNet), are compared by number, as they must be: what
    some numbers were taken for is said, as they may be meant otherwise.
    """
    if not ours:
        if len(theirs) != classes:
            raise UsageError(f"{who} has {classes} classes, {data} has {len(theirs)}", "use the data it was trained on, or fine-tune it")
        check_order(who, data, theirs)
        say(f"note: {who}'s classes have no names: those of {data} are taken in their order")
        return np.arange(classes)
    matches = find_classes(who, ours, classes, data, theirs)
    strange = [name for name, number in zip(theirs, matches, strict=True) if number is None]
    if strange and (numbers := _as_numbers(ours, classes, theirs)):
        first = f"{theirs[0]} is {ours[numbers[0]]}"
        say(f"note: the classes of {data} are numbers: taken as those of {who}'s {classes:,} classes, counted from 0 ({first})")
        return np.array(numbers, np.int64)
    if strange:
        near = difflib.get_close_matches(strange[0], ours, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"{data} has classes that {who} does not know: {few(strange)}",
            f"{hint}name its folders as the model does ({few(ours)}), or fine-tune the model",
        )
    return np.array(matches, np.int64)


def find_classes(who: str, ours: Sequence[str], classes: int, data: str, theirs: Sequence[str]) -> list[int | None]:
    """The number that `who` gives each of `theirs`; None: it is not one of its own. Numbers are names only where all of them are there:
    folders 001 to 005 need not be the first five of a thousand."""
    aliases = _aliases(ours)
    matches: list[int | None] = [aliases.get(_normalise(name)) for name in theirs]
    if None in matches and len(theirs) == classes and (numbers := _as_numbers(ours, classes, theirs)):
        matches = list(numbers)
    if None in matches and classes == _IMAGENET and all(re.fullmatch(r"n\d{8}", name) for name in theirs):
        matches = _word_net(theirs)
    numbers = [number for number in matches if number is not None]
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"two classes of {data} have the name of one of {who}'s", "put their pictures into one folder")
    return matches


def check_order(who: str, data: str, theirs: Sequence[str]) -> None:
    """Refuse to take classes in their order where that of their names (1, 10, 2) is not that of their numbers."""
    if all(map(str.isdecimal, theirs)) and list(theirs) != sorted(theirs, key=int):
        raise UsageError(
            f"{who}'s classes have no names, and those of {data} have two orders ({few(theirs)})",
            "name its folders with leading zeros (01, 02, 10), in the order that the model learnt",
        )


def _as_numbers(ours: Sequence[str], classes: int, theirs: Sequence[str]) -> list[int]:
    """`theirs` as class numbers; none where they are names, or ours are numbers themselves."""
    if any(map(str.isdecimal, ours)) or not all(name.isdecimal() and int(name) < classes for name in theirs):
        return []
    numbers = [int(name) for name in theirs]
    return numbers if len(set(numbers)) == len(numbers) else []


def _normalise(name: str) -> str:
    """Maine_Coon and maine-coon are one name."""
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def _aliases(names: Sequence[str]) -> dict[str, int | None]:
    """Alias → class index; ImageNet names list synonyms (`tench, Tinca tinca`). An alias of two classes maps to None."""
    out: dict[str, int | None] = {}
    for forms in ([[_normalise(name)] for name in names], [list(map(_normalise, name.split(","))) for name in names]):
        numbered: dict[str, int | None] = {}
        for number, names_of_class in enumerate(forms):
            for name in names_of_class:
                numbered[name] = number if numbered.get(name, number) == number else None
        out = numbered | out
    return out


def _word_net(names: Sequence[str]) -> list[int | None]:
    """ImageNet's classes are in the order of WordNet's numbers; which are missing among fewer than all only timm knows."""
    if len(names) == _IMAGENET:
        ranks = {name: number for number, name in enumerate(sorted(names))}
        return [ranks[name] for name in names]
    if importlib.util.find_spec("timm") is None:
        raise UsageError(f"{len(names)} of ImageNet's classes by their WordNet numbers", "install timm, which knows them: vitral[hub]")
    from timm.data import ImageNetInfo

    order = {name: number for number, name in enumerate(ImageNetInfo("imagenet-1k").label_names())}
    return [order.get(name) for name in names]
