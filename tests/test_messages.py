"""Every command that the source shows, in an error, a note, a docstring or an example, is one that the parser takes."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import flags_of_line, parse_line, spellings

from vitral.base.errors import UsageError
from vitral.cli import VERBS
from vitral.cli.completion import commands

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+(?![\w-])")
SOURCE = Path(__file__).parents[1] / "src" / "vitral"
FILLED = {"RUN": "digits", "PATH": "photos", "NAME": "digits", "K": "5", "RUN_OR_STUDY": "runs/digits"}
"""What stands for a placeholder, where the word itself would be refused."""
FOREIGN = {"--nproc-per-node", "--loglevel", "--pack-destination", "--extract", "--upgrade"}
"""Of torchrun, npm, dpkg and pip."""


def texts(path: Path) -> Iterator[str]:
    """Every string of a Python file; what is filled in later is X. Of a page or a script, all of it."""
    if path.suffix != ".py":
        yield path.read_text(encoding="utf-8")
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def shown() -> Iterator[tuple[str, str, bool]]:
    """(file, command, whether all of it is there): in backticks or as an example, else up to where a sentence goes on."""
    for path in sorted(path for kind in ("py", "html", "js") for path in SOURCE.rglob(f"*.{kind}")):
        for text in texts(path):
            name = path.relative_to(SOURCE).as_posix()
            whole = re.findall(r"`(vitral [a-z]+ [^`\n…|]+)`|^  (vitral [a-z]+ .*?)(?:  # .*)?$", text, re.MULTILINE)
            lines = (re.split(r" [>|] ", quoted or example)[0] for quoted, example in whole)  # without what the shell does with it
            yield from ((name, line, True) for several in lines for line in several.split("; "))
            plain = re.sub(r"`[^`]*`", "", text)
            yield from ((name, found, False) for found in re.findall(r"\bvitral [a-z]+ [^`;:)<\"\n]*--[a-z-]+", plain))


COMMANDS = list(dict.fromkeys(shown()))


@pytest.mark.parametrize(("file", "command", "whole"), COMMANDS)
def test_a_command_that_is_shown_can_be_typed(file: str, command: str, whole: bool) -> None:
    _, verb, *words = shlex.split(command, comments=False) if whole else command.split()
    assert verb in VERBS, f"{file}: {command}"
    words = [FILLED.get(word, word) for word in words]
    if verb in ("train", "plan") and words:
        words[0] = words[0].replace("runs/digits", "digits")  # a run that was trained is named like any other
    flags, left = flags_of_line(verb, words)
    known = {*spellings(flags), "--help", "--help-all", "--resume", "--debug"}
    assert [word for word in words if word.startswith("--") and word.partition("=")[0] not in known] == [], f"{file}: {command}"
    if not whole or not any(not word.startswith("-") for word in left[:1]):
        return  # a verb that is named, with a flag of it perhaps
    try:
        parse_line(verb, words)
    except UsageError as error:
        pytest.fail(f"{file}: {command}: {error}")


def test_every_flag_that_is_named_is_a_flag() -> None:
    known = {"--help", "--help-all", "--debug", "--version", *FOREIGN}
    for verb in VERBS:
        known |= {name for flags, _ in commands(verb).values() for name in spellings(flags)}
    named = {
        (path.relative_to(SOURCE).as_posix(), flag) for path in SOURCE.rglob("*.py") for text in texts(path) for flag in FLAG.findall(text)
    }
    assert {(file, flag) for file, flag in named if flag not in known and not flag.startswith("--no-")} == set()


def test_advice_on_data_names_flags_of_every_verb_that_gives_it() -> None:
    """ImageNet is fetched by nobody: what train, plan and pretrain say of it must help there."""
    from vitral.data.sources.catalogue import CATALOGUE
    from vitral.data.sources.fetch import advice

    both = spellings(commands("plan")[""][0]) & spellings(commands("pretrain")[""][0])
    named = {flag for entry in CATALOGUE.values() if entry.name != "digits" for flag in FLAG.findall(advice(entry, Path("data")))}
    assert named - both == set()


@pytest.mark.parametrize("verb", ["eval", "probe", "compare", "scale", "pretrain", "data show"])
def test_a_file_that_cannot_be_read_can_be_passed_over_as_the_error_says(verb: str) -> None:
    verb, *words = verb.split()
    assert "--on-bad-image" in spellings(flags_of_line(verb, words)[0])


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 100 and {whole for _, _, whole in COMMANDS} == {True, False}
