from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
import tyro

from vitral.base.errors import UsageError
from vitral.cli.parsing import parse


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
    crop: tuple[float, float] = (0.0, 1.0)
    """Between which edges."""
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


def test_a_list_leaves_the_words_that_others_need() -> None:
    assert read("--seed", "-1", "--image-size", "8", "16", "digits") == Flags("digits", image_size=(8, 16), seed=-1)
    assert read("--image_size=8", "digits", "--batch-size=4") == Flags("digits", image_size=(8,), batch=4)
    assert read("--crop", ".5", "1e1", "--", "-digits") == Flags("-digits", crop=(0.5, 10.0))

    @dataclass(frozen=True)
    class Several:
        model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
        images: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE…")]
        top: int = 5

    assert parse(Several, ["m", "a", "--top", "1", "b"], "vitral try", "") == Several("m", ("a", "b"), 1)
    assert parse(Several, ["m"], "vitral try", "") == Several("m", ())
    with pytest.raises(UsageError, match="MODEL"):
        parse(Several, [], "vitral try", "")


def test_no_version_of_tyro_reads_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tyro, "cli", None)
    assert read("digits", "--seed", "1").seed == 1


@pytest.mark.parametrize("words", [["--epochs", "none"], ["--epochs", "None"], ["--epochs=NONE"], ["--from", "none"]])
def test_none_is_said_in_small_letters(words: list[str]) -> None:
    assert read("digits", *words) == Flags("digits")
    assert read("digits", "--mask", "none").mask == "none"
    assert read("none", "--image-size", "none") == Flags("none")  # a run of that name


def test_a_switch_goes_on_and_off() -> None:
    @dataclass(frozen=True)
    class On:
        resume: bool = True

    assert parse(On, ["--resume"], "vitral try", "").resume and not parse(On, ["--no-resume"], "vitral try", "").resume
    assert read("digits", "--resume").resume and not read("digits", "--resume", "--no-resume").resume


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
        (["digits", "--image-size"], "--image-size has no value: write it after the flag; "),
        (["digits", "--crop", "8"], "--crop cannot be '8': use two numbers; "),
        (["digits", "--crop", "8", "x"], "--crop cannot be 'x': use two numbers; "),
        (["digits", "--from", "--seed", "1"], "--from has no value: write it after the flag; "),
        (["digits", "--resume=yes"], "--resume takes no value: write --resume or --no-resume; "),
        (["digits", "--no-seed", "1"], "unknown flag --no-seed: did you mean --seed?; "),
        (["digits", "--", "--seed"], "'--seed' is one word too many: "),
        (["digits", "-1"], "'-1' is one word too many: "),
    ],
)
def test_mistakes_are_one_line(words: list[str], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(*words)
    assert str(caught.value) == f"{line}vitral try --help shows examples and all flags"


def test_help_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read("--help")
    assert caught.value.code in (0, None) and "--image-size" in capsys.readouterr().out
