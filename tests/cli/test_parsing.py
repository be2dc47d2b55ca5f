from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Annotated, Any, Literal

import pytest

from vitral.base.errors import UsageError
from vitral.cli.parsing import parse
from vitral.cli.parsing import read as read_flags
from vitral.config.flags import Flag


@dataclass(frozen=True)
class Flags:
    """What they share."""

    run: Annotated[str, "RUN"]
    """Which run."""
    epochs: float | None = None
    """How long."""
    image_size: tuple[int, ...] | None = None
    """How large."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """Which one."""
    batch: Annotated[int, "--batch --batch-size"] = 64
    """How many at a time."""
    mask: Literal["none", "all"] | None = None
    """What is hidden."""
    crop: tuple[float, float] = (0.0, 1.0)
    """Between which edges."""
    seed: int = 0
    """Where chance begins."""
    resume: bool = False
    """Go on."""
    weights: Annotated[str | None, "--from"] = None
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
        model: Annotated[str, "MODEL"]
        images: Annotated[tuple[str, ...], "IMAGE…"]
        top: int = 5

    assert parse(Several, ["m", "a", "--top", "1", "b"], "vitral try", "") == Several("m", ("a", "b"), 1)
    assert parse(Several, ["m"], "vitral try", "") == Several("m", ())
    with pytest.raises(UsageError, match="MODEL"):
        parse(Several, [], "vitral try", "")


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
    assert str(caught.value) == f"{line}vitral try --help shows examples and flags"


def shown(flag: str, kind: type[Any], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        parse(kind, ["digits", flag], "vitral try", "Try it, with a sentence so long that it has to be wrapped at the margin of 80.")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    return text


@dataclass(frozen=True)
class Many(Flags):
    """What others have too."""

    more: int = 3
    """First sentence. A second one that only the whole help shows."""


def test_help_has_two_levels(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    few = shown("--help", Flags, capsys)
    assert few == shown("--help-all", Flags, capsys), "a verb with few flags shows them all at once"
    assert "usage: vitral try RUN [flags]" in few and "--optimizer        Which one. (adamw, sgd; default adamw)" in few
    monkeypatch.setattr("vitral.cli.parsing._WHOLE", 10)
    common, everything = shown("--help", Many, capsys), shown("--help-all", Many, capsys)
    assert "--more N" in common and "--seed" not in common and "second one" not in common
    assert "vitral try --help-all shows 9 more flags" in common and "RUN" in common
    assert "--seed N" in everything and "second one" in everything


def test_a_list_of_words_may_be_typed_one_by_one() -> None:
    @dataclass(frozen=True)
    class Listed:
        set: tuple[str, ...] = ()
        size: tuple[int, ...] | None = None

    words = ["--set", "a=1", "b=2", "--size", "8", "--set=c=3", "--size", "16"]
    assert parse(Listed, words, "vitral try", "") == Listed(("a=1", "b=2", "c=3"), (16,))


def test_a_flag_that_may_stand_alone() -> None:
    flags = [Flag("resume", ("--resume",), Literal["no", "yes", "auto"], "no", alone="yes"), Flag("run", ("RUN",), str, MISSING)]
    for words, expected in ((["--resume", "x"], "yes"), (["x", "--resume"], "yes"), (["--resume", "auto", "x"], "auto")):
        assert read_flags(flags, words, "vitral try", "") == {"run": "x", "resume": expected}
