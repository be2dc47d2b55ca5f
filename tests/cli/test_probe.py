"""The verb probe, as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vitral.build import create
from vitral.cli import main
from vitral.weights.checkpoint import save


def test_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(save(create("digits", depth=1, pool="mean", class_token=False), tmp_path / "model"))
    arguments = ["probe", model, "digits", "--shots", "1,all", "--draws", "2", "--quiet", "--device", "cpu"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "1 a class" in shown and "linear probe, 95 % interval" in shown and "over 2 draws" in shown and "frozen features of" in shown
    assert main([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["shots"] for row in rows] == [1, None] and 0 <= rows[0]["linear"]["mean"] <= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["probe", "nowhere", "digits", "--shots", "few"], "neither a number"),
    ],
)
def test_refused_in_one_line(arguments: list[str], words: str, refused: Callable[[list[str], str], None]) -> None:
    refused(arguments, words)
