from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
import tyro

from vitral.base.errors import UsageError
from vitral.cli.parsing import parse, spoken


@dataclass(frozen=True)
class Flags:
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Which run."""
    epochs: float | None = None
    """How long."""
    image_size: tuple[int, ...] | None = None
    """How large."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """Which one."""
    batch: Annotated[int, tyro.conf.arg(aliases=("--batch-size",))] = 64
    """How many at a time."""
    mask: Literal["none", "all"] | None = None
    """What is hidden."""
    seed: int = 0
    """Where chance begins."""
    resume: bool = False
    """Go on."""
    weights: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """What it starts from."""


def read(*words: str) -> Flags:
    return parse(Flags, list(words), "vitral try", "Tries.")


def test_what_is_typed_is_what_is_meant() -> None:
    assert read("digits") == Flags("digits")
    assert read("digits", "--epochs", "3", "--image-size", "8", "16", "--resume", "--from", "x") == Flags(
        "digits", 3.0, (8, 16), resume=True, weights="x"
    )


@pytest.mark.parametrize("words", [["--epochs", "none"], ["--epochs", "None"], ["--epochs=NONE"], ["--from", "none"]])
def test_none_is_said_in_small_letters(words: list[str]) -> None:
    assert read("digits", *words) == Flags("digits")
    assert read("digits", "--mask", "none").mask == "none"
    assert spoken(Flags, ["none", "--seed", "none"]) == ["none", "--seed", "none"]  # a run of that name; a seed that there must be


def test_a_switch_that_is_on_may_be_switched_on() -> None:
    @dataclass(frozen=True)
    class On:
        resume: bool = True

    assert spoken(On, ["--resume"]) == []
    assert spoken(Flags, ["--resume", "--no-resume"]) == ["--resume"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "RUN is missing: "),
        (["digits", "again"], "'again' is one word too many: "),
        (["digits", "--epoch", "3"], "unknown flag --epoch: did you mean --epochs?; "),
        (["digits", "--nothing"], "unknown flag --nothing: "),
        (["digits", "--bacth", "4"], "unknown flag --bacth: did you mean --batch?; "),
        (["digits", "--batch-siz", "4"], "unknown flag --batch-siz: did you mean --batch?; "),
        (["digits", "--form=x"], "unknown flag --form=x: did you mean --from?; "),
        (["digits", "--optimizer", "adam"], "--optimizer cannot be 'adam': did you mean adamw? It is one of adamw, sgd; "),
        (["digits", "--epochs"], "--epochs has no value: write it after the flag; "),
        (["digits", "--epochs", "many"], "--epochs cannot be 'many': use a number or None; "),
        (["digits", "--seed", "1.5"], "--seed cannot be '1.5': use a whole number; "),
        (["digits", "--image-size", "big"], "--image-size cannot be 'big': use one or more whole numbers or None; "),
        (["digits", "--optimizer", "lion"], "--optimizer cannot be 'lion': use adamw, sgd; "),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_mistakes_are_one_line(words: list[str], line: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))  # tyro draws its frame by it
    with pytest.raises(UsageError) as caught:
        read(*words)
    assert str(caught.value) == f"{line}vitral try --help shows examples and all flags"


def test_help_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read("--help")
    assert caught.value.code in (0, None) and "--image-size" in capsys.readouterr().out
