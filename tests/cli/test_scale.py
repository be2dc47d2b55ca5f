"""The verb scale, as a user types it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from vitral.base.errors import UsageError
from vitral.cli import main
from vitral.cli.scale import ask


def test_scale_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "scale",
        "digits",
        "--kind",
        "cost",
        "--image-sizes",
        "8,16",
        "--patches",
        "2,4",
        "--batch-size",
        "2",
        "--device",
        "cpu",
        "--quiet",
    ]
    assert main([*arguments, "--out", str(tmp_path / "cost"), "--json"]) == 0
    assert [row["tokens"] for row in json.loads(capsys.readouterr().out)["rows"]] == [4, 16, 16, 64]


def test_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["scale", "digits", "--models", "vit-small", "--sizes", "32,64", "--budget", "samples=64", "--seeds", "2", "--lrs", "3e-3"]
    arguments += ["--batch-size", "32", "--parallel", "1", "--device", "cpu", "--quiet", "--yes", "--out", str(tmp_path / "study")]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "forecast: 4 cells, about" in shown.err
    assert "32 pictures" in shown.out and "64 pictures" in shown.out and "it is extrapolation" in shown.out
    assert main([*arguments, "--json"]) == 0
    shown = capsys.readouterr()
    assert "nothing is left to run" in shown.err and [row["size"] for row in json.loads(shown.out)["rows"]] == [32, 64]


def test_pretraining(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["scale", "digits", "--kind", "pretraining", "--from-data", "digits", "--models", "vit-small", "--sizes", "40,120"]
    arguments += ["--budget", "epochs=1", "--transfer", "samples=64", "--shots", "2", "--seeds", "1", "--lrs", "3e-3", "--batch-size", "32"]
    arguments += ["--parallel", "1", "--device", "cpu", "--quiet", "--yes", "--out", str(tmp_path / "study"), "--json"]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    values = json.loads(shown.out)
    assert "forecast: 7 cells, about" in shown.err and values["kind"] == "pretraining" and values["pretraining_budget"] == "epochs=1"


@pytest.mark.parametrize("verb", ["scale --kind data --yes", "scale --kind pretraining --from-data digits --yes", "compare"])
def test_the_folder_of_another_study_is_refused_at_once(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def spend(*_arguments: object, **_options: object) -> None:
        raise AssertionError("timed or trained before the folder was looked at")

    for module, name in (("scale", "forecast"), ("scale", "forecast_pretraining"), ("conduct", "run_cells")):
        monkeypatch.setattr(import_module(f"vitral.study.fight.{module}"), name, spend)
    (tmp_path / "study.json").write_text('{"kind": "other", "data": {}}')
    asked, *flags = verb.split()
    assert main([asked, "digits", *flags, "--models", "vit-small", "--device", "cpu", "--out", str(tmp_path)]) == 2
    assert f"{tmp_path} holds another study (different: " in capsys.readouterr().err


def test_it_asks_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(True)
    for answer, refused in (("y\n", False), ("\n", True), ("n\n", True)):
        terminal = io.StringIO(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)
        if refused:
            with pytest.raises(UsageError, match="not begun"):
                ask(False)
        else:
            ask(False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["scale", "digits", "--kind", "data", "--models", "vit-small", "--quiet", "--device", "cpu"], "--yes"),
        (
            ["scale", "digits", "--kind", "data", "--models", "vit-small", "--quiet", "--device", "cpu", "--max-hours", "1e-6", "--yes"],
            "--max-hours",
        ),
        (["scale", "digits", "--kind", "cost", "--models", "cnn"], "no patches"),
        (["scale", "digits", "--kind", "cost", "--image-sizes", "nan,16"], "not a list of positive numbers"),
        (["scale", "digits", "--kind", "cost", "--budget", "rubbish"], "--kind cost has no use for --budget"),
        (["scale", "digits", "--kind", "cost", "--seeds", "0"], "--kind cost has no use for --seeds"),
        (["scale", "digits", "--kind", "compute", "--patches", "banana"], "--kind compute has no use for --patches"),
        (["scale", "digits", "--kind", "data", "--image-sizes", "8"], "--kind data has no use for --image-sizes"),
        (["scale", "digits", "--from-data", "mnist"], "--kind data has no use for --from-data"),
        (["scale", "digits", "--kind", "pretraining"], "name it with --from-data"),
        (["scale", "digits", "--kind", "pretraining", "--from-data", "digits", "--patches", "3"], "has no use for --patches"),
        (["scale", "digits", "--kind", "pretraining", "--from-data", "digits", "--shots", "9999"], "9999 shots asked for"),
        (["scale", "digits", "--kind", "pretraining", "--from-data", "digits", "--recipe", "plain,strong"], "takes one recipe"),
        (["scale", "digits", "--sizes=-0.1,1"], "not a list of positive numbers"),
        (["scale", "digits", "--sizes", "10,99999"], "a size of 99999 is neither"),
    ],
)
def test_refused_in_one_line(arguments: list[str], words: str, refused: Callable[[list[str], str], None]) -> None:
    refused(arguments, words)
