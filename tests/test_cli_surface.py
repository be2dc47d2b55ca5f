"""The command line as a new user meets it: help everywhere, and mistakes answered in one line that says what to do."""

from __future__ import annotations

import re
import shlex
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from vitral.base.origin import Origin
from vitral.base.version import __version__
from vitral.build import create, models
from vitral.cli import GROUPS, VERBS, main, parsing
from vitral.cli.compare import numbers
from vitral.cli.completion import commands
from vitral.cli.train import setting
from vitral.data.sources.kinds import check_name
from vitral.look.figures import check_figures
from vitral.look.method import methods_named
from vitral.presets.runs import RUNS
from vitral.study.fight.contenders import RECIPES, check_model, read_varied
from vitral.study.fight.experiment import Budget
from vitral.weights.checkpoint import save

ROOT = Path(__file__).parents[1]
LONGEST_HELP = 60
PRETRAINING = ("lejepa", "dino", "mae")
COMMANDS = [[verb] for verb in VERBS] + [["weights", name] for name in ("inspect", "convert", "list")]
COMMANDS += [["completion", name] for name in ("bash", "zsh", "fish")]
COMMANDS += [["data", name] for name in ("list", "get", "show", "check", "cache")]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a model and a picture in a folder below it."""
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    model, facts = create("tiny"), create("tiny").origin.to_dict()
    for fact in facts.values():  # a model of which nothing is assumed: only mistakes are to be heard
        if isinstance(fact, dict) and "declared" in fact:
            fact["declared"] = True
    model.origin = Origin.from_dict(facts)
    save(model, tmp_path / "things" / "run")
    Image.new("RGB", (32, 32), "teal").save(tmp_path / "things" / "teal.png")
    return tmp_path


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("vitral: "), captured.err
    assert "Traceback" not in captured.err and ": " in lines[0].removeprefix("vitral: ")
    return lines[0]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_all_verbs(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    for what, verbs in GROUPS.items():
        start = lines.index(f"To {what}") + 1
        assert [line.split()[0] for line in lines[start : start + len(verbs)]] == [*verbs] and not lines[start - 2]
    assert all(f"  {verb} " in shown and line in shown for verb, line in VERBS.items())
    assert max(map(len, lines)) <= 80


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vitral {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_examples_that_begin_with_the_command(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    captured = capsys.readouterr()
    assert "Examples" in captured.out and f"\n  vitral {' '.join(command)}" in captured.out.replace("│", " ") and not captured.err


class Parsed(BaseException):
    """Raised where a verb would begin to work."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    assert main(["train", "digits", "--epochs", "0.02", "--device", "cpu", "--quiet", "--out", str(folder / "runs/digits")]) == 0
    return folder


def each(check: Callable[[str], object]) -> Callable[[str], object]:
    return lambda text: [check(part) for part in text.split(",")]


CHECKS: dict[str, Callable[[str], object]] = {
    "data": lambda name: name in ("folder:photos", "folder:flowers", "folder:sorted", "folder:imagenet/val", "photos") or check_name(name),
    "from_data": check_name,
    "models": each(check_model),
    "methods": lambda text: methods_named(text.split(",")),
    "method": lambda text: ":" in text or text in PRETRAINING or methods_named(text.split(",")),
    "only": lambda text: check_figures(text.split(",")),
    "vary": read_varied,
    "budget": Budget.parse,
    "recipe": each(RECIPES.__getitem__),
    "pretrain": each(lambda name: [*PRETRAINING, "supervised", "untrained"].index(name)),
    "sizes": lambda text: numbers(text, "--sizes"),
    "image_sizes": lambda text: numbers(text, "--image-sizes"),
    "patches": lambda text: numbers(text, "--patches"),
    "set": lambda text: setting(text, RUNS["pretrain-digits"]),
}
"""Field of a flag → what refuses a wrong value of it after the line was read."""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_example_can_be_pasted(
    command: list[str], trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trained)
    assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out.split("Examples:\n")[1].split("\n\n")[0].splitlines()
    read = parsing._read

    def reading(*parts: Any) -> None:
        raise Parsed(read(*parts))

    monkeypatch.setattr(parsing, "_read", reading)
    assert shown
    for line in shown:
        assert line.startswith("  ") and len(line.rstrip()) <= 78, "it is broken on a terminal of 80"
        text, _, comment = line.strip().partition("  # ")
        assert re.fullmatch(r"[\w ,.:-]*", comment), f"zsh, which reads comments as words, would not take it: {comment}"
        start, *_ = re.split(r" [>|] ", re.sub(r"^source <\((.*)\)$", r"\1", text))
        assert "   " not in start and not set(start) & set(";&|<>()`$'\"*?!"), line
        words = shlex.split(start)
        assert words[0] == "vitral" or (words[0] == "torchrun" and words[3:5] == ["-m", "vitral"]), line
        assert is_valid([*words[words.index("vitral") + 1 :], "#", *comment.split()]), capsys.readouterr().err


def is_valid(arguments: list[str]) -> bool:
    """Whether the line can be read, with values that its verb takes."""
    try:
        main(arguments)
        return False
    except Parsed as parsed:
        for key, value in parsed.args[0].items():
            field = "data" if key == "data.name" else key.rpartition(".")[2]
            for one in value if isinstance(value, tuple) else (value,):
                if field in CHECKS and isinstance(one, str):
                    CHECKS[field](one)
    return True


@pytest.mark.parametrize(
    ("arguments", "code"), [("train digts", 2), ("train digits --no-such-thing", 2), ("predict nowhere things/teal.png", 1)]
)
def test_what_is_wrong_is_one_line_with_its_exit_code(arguments: str, code: int, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Word by word, and for every verb: tests/messages.txt."""
    assert main(arguments.split()) == code
    one_line(capsys)
    assert {path.name for path in here.iterdir()} == {"things"}  # nothing was begun


def test_a_demo_that_cannot_be_keeps_what_is_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--epochs", "0"], []):
        assert main(["demo", "--out", "things/run", *arguments]) == 2
        one_line(capsys)
        assert (here / "things/run/model.safetensors").is_file()


def test_debug_shows_the_traceback(here: Path) -> None:
    from vitral.base.errors import WeightsError

    with pytest.raises(WeightsError, match="nowhere"):
        main(["--debug", "predict", "nowhere", "things/teal.png"])


def test_what_nobody_foresaw_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(arguments: list[str]) -> int:
        raise RuntimeError("the cable\nis out")

    monkeypatch.setattr("vitral.cli.report.run", fail)
    assert main(["report", "x"]) == 1
    assert one_line(capsys) == "vitral: RuntimeError: the cable: run again with --debug for the traceback"
    with pytest.raises(RuntimeError):
        main(["report", "x", "--debug"])


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_says_what_it_is_for(verb: str) -> None:
    for command, (flags, _) in commands(verb).items():
        assert not [flag.names[0] for flag in flags if not flag.text], f"{verb} {command}"


def test_the_reference_is_what_the_code_says(make_reference: Any) -> None:
    for name, make in make_reference.PAGES.items():
        written = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
        assert written == make(), f"docs/reference/{name} has fallen behind the code: python docs/make_reference.py"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_fits_and_all_flags_are_in_the_long_one(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= LONGEST_HELP and max(map(len, lines)) <= 80
    if command == ["data"] or command == ["weights"]:
        return
    assert main([*command, "--help-all"]) == 0
    shown = {word.strip(",") for word in capsys.readouterr().out.split()}
    verb, *rest = command
    of_verb = commands(verb)
    flags, _ = of_verb.get("") or of_verb[rest[0]]
    assert {flag.names[0].split()[0] for flag in flags} <= shown


def test_no_verb_reaches_the_network_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import, training on built-in data, prediction and a look at a local file, with every socket refused."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    for name in ("connect", "connect_ex", "bind", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    run, picture = str(tmp_path / "run"), str(tmp_path / "one.png")
    Image.new("L", (8, 8)).save(picture)
    assert main(["train", "digits", "--epochs", "0.02", "--device", "cpu", "--quiet", "--out", run]) == 0
    assert main(["predict", run, picture]) == 0
    assert main(["look", run, picture, "--out", str(tmp_path / "look")]) == 0
    assert main(["report", run]) == 0


def test_what_needs_no_torchvision_runs_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The CPU builds of PyTorch come without a torchvision that fits from everywhere: the digits, looking and a report ask for none."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    run, picture = str(tmp_path / "run"), str(tmp_path / "one.png")
    Image.new("L", (8, 8)).save(picture)
    assert main(["train", "digits", "--epochs", "0.02", "--device", "cpu", "--quiet", "--out", run]) == 0
    assert main(["predict", run, picture]) == main(["look", run, picture, "--out", str(tmp_path / "look")]) == main(["report", run]) == 0
    capsys.readouterr()
    assert main(["train", "digits", "--model", "resnet18", "--quiet", "--out", str(tmp_path / "other")]) == 1
    assert "a ResNet needs torchvision" in one_line(capsys)
    assert main(["predict", "torchvision:vit_b_16", picture]) == 1
    assert "torchvision:vit_b_16 needs torchvision" in capsys.readouterr().err
    assert "b/16" in models() and "resnet18" not in models()
    assert main(["weights", "list"]) == 0
