"""What users read when something is wrong, word by word, in tests/messages.txt; and every command that the source shows can be typed.

messages.txt lists calls, commands after `$` and Python after `>>>`, each with what it answers: class, exit code, text. To add a call,
write its line; to reword a message, change the source. Then `pytest tests/test_messages.py --write-messages`, and read the diff.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tests.commands import flags_of_line, parse_line, spellings
from tests.train.stops import stopped_after

import vitral
from vitral.base.errors import UsageError, VitralError
from vitral.base.origin import Origin
from vitral.build import create
from vitral.cli import VERBS, main
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


# ---- every wording --------------------------------------------------------------------------------------------------------------

GOLDEN = Path(__file__).parent / "messages.txt"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A folder with models, runs, pictures and files that are damaged in many ways, and names for what Python calls need."""
    folder = tmp_path_factory.mktemp("messages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("vitral.base.network.reachable", lambda address: False)
        patch.setenv("VITRAL_DATA", str(folder / "data"))
        yield furnish(folder)


def furnish(folder: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    model = create("tiny", image_size=16, patch_size=4, width=16, depth=2, heads=2, mlp_width=16, classes=4)
    facts = model.origin.to_dict()
    for fact in facts.values():  # nothing is assumed: only what is wrong is to be heard
        if isinstance(fact, dict):
            fact.update({key: True for key, value in fact.items() if isinstance(value, bool)})
    model.origin = Origin.from_dict(facts)
    vitral.save(model, "model")
    vitral.save(model.with_head(0), "headless")
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        for split in ("photos", "split/train", "no-train/test"):
            (folder / split / name).mkdir(parents=True)
            for number in range(6):
                Image.fromarray(draw.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(folder / split / name / f"{number}.png")
    shutil.copytree("photos", "one-damaged")
    Path("one-damaged/cat/1.png").write_bytes(b"a letter")
    Path("empty").mkdir()
    Path("nothing/inside").mkdir(parents=True)
    shutil.copy("photos/cat/0.png", "cat.png")
    Path("cut.png").write_bytes(Path("cat.png").read_bytes()[:300])
    Path("letter.png").write_bytes(b"a letter")
    Path("letter.json").write_text("a letter")
    for name in ("letter.safetensors", "letter.pth", "letter.npz"):
        Path(name).write_bytes(b"a letter, no weights")
    Path("empty.safetensors").touch()
    torch.save({"weights": object}, "objects.pth")
    torch.save({"some.weight": torch.zeros(2, 2)}, "unknown.pth")
    save_file({"x": torch.full((2,), float("nan"))}, "unknown.safetensors")
    Path("labels.csv").write_text("path,label\nphotos/cat/0.png,cat\nphotos/cat/9.png,cat\n")
    Path("unnamed.csv").write_text("first,second\n1,2\n")
    small = {"epochs": 0.2, "device": "cpu", "threads": 1, "batch_size": 64}
    config = vitral.presets.run("digits", **small)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, width=8, depth=1, heads=1, mlp_width=8))
    run = vitral.fit(config, out="runs/done", quiet=True)
    with stopped_after(1):
        vitral.fit(dataclasses.replace(config, train=dataclasses.replace(config.train, epochs=1.0)), out="runs/stopped", quiet=True)
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    tape = vitral.watch(model, images)
    given = {"model": model, "headless": model.with_head(0), "cnn": create("cnn", image_size=16, classes=4), "images": images}
    given |= {"tape": tape, "heat": vitral.look.rollout(tape), "config": config, "run": run, "TrainConfig": vitral.TrainConfig}
    return given | {"vitral": vitral, "look": vitral.look, "torch": torch, "nn": torch.nn, "np": np, "replace": dataclasses.replace}


def answer(call: str, given: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """Class, exit code and text of the error that a call raises, with the notes that come before it."""
    try:
        if call.startswith("$ vitral "):
            code = main(["--debug", *shlex.split(call.removeprefix("$ vitral "))])
            result = f"exit {code}"
        else:
            result = repr(eval(call.removeprefix(">>> "), given))
    except VitralError as error:
        result = f"{type(error).__name__}, exit {error.exit_code}\n{error}"
    except Exception as error:  # Python's own: a keyword that is not there
        result = f"{type(error).__name__}\n{error}"
    said = capsys.readouterr()
    text = "\n".join(part.strip() for part in (said.out, said.err, result) if part.strip()).replace(str(Path.cwd()), "HERE")
    return re.sub(r"\(\w+Error: .*\)(?=: )", "(…)", text)  # what another library says


def entries(text: str) -> dict[str, str]:
    """Call → what the file says that it answers."""
    found = re.findall(r"^((?:\$|>>>) .+)\n((?:(?!\$ |>>> |#).*\n)*)", text, re.MULTILINE)
    return {call: says.strip() for call, says in found}


def test_every_message_is_the_one_in_the_file(
    bench: dict[str, Any], request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GOLDEN.read_text(encoding="utf-8")
    written, there = entries(text), sorted(Path.cwd().rglob("*"))
    made = {}
    for call in written:
        made[call] = answer(call, bench, capsys)
        assert sorted(Path.cwd().rglob("*")) == there, f"{call} leaves something behind"
    if request.config.getoption("--write-messages"):
        lines = [f"{line}\n{made[line]}\n" if line in made else line for line in text.splitlines() if line in made or line.startswith("#")]
        GOLDEN.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    changed = {call: (says, made[call]) for call, says in written.items() if made[call] != says}
    assert not changed, "\n\n".join(f"{call}\n  is:  {now}\n  was: {was}" for call, (was, now) in changed.items())
    assert len(written) > 200


def test_a_message_is_one_line_that_says_what_to_do() -> None:
    for call, says in entries(GOLDEN.read_text(encoding="utf-8")).items():
        found = re.search(r"^(\w+)(, exit [12])?\n(.+)\Z", says, re.MULTILINE)
        assert found and "Traceback" not in says, call
        assert not call.startswith("$") or (found[2] and ": " in found[3]), call
