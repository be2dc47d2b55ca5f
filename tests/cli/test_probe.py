"""The verb probe, as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from vitral.build import create
from vitral.cli import main
from vitral.weights.checkpoint import save
from vitral.weights.load import load


def test_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(save(create("digits", depth=1, pool="mean", class_token=False), tmp_path / "model"))
    arguments = ["probe", model, "digits", "--shots", "1,all", "--draws", "2", "--quiet", "--device", "cpu"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "1 a class" in shown and "linear probe, 95 % interval" in shown and "over 2 draws" in shown and "frozen features of" in shown
    assert main([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["shots"] for row in rows] == [1, None] and 0 <= rows[0]["linear"]["mean"] <= 1


def test_a_saved_probe_is_a_model_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = create("digits", depth=1, pool="mean", class_token=False, head_hidden=8, classes=3)
    model, kept = str(save(body, tmp_path / "model")), str(tmp_path / "probe")
    arguments = ["probe", model, "digits", "--shots", "all", "--quiet", "--device", "cpu", "--save", kept]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"][-1]["linear"]["mean"]
    assert main(["eval", kept, "digits", "--json"]) == 0
    told = capsys.readouterr()
    scored = json.loads(told.out)
    assert scored["split"] == "test" and "the model learnt from digits" in told.err
    assert scored["top1"] == pytest.approx(found) and list(scored["per_class"]) == list("0123456789")
    made = load(kept)
    assert "head: a linear probe of the frozen body" in made.origin.changes[-1] and made.config.head_hidden == 0
    assert torch.equal(made.state_dict()["blocks.0.mlp.expand.weight"], body.state_dict()["blocks.0.mlp.expand.weight"])
    assert body.config.classes == 3, "the body that was given stays as it is"
    assert main(arguments) == 2 and "already holds a model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["probe", "nowhere", "digits", "--shots", "few"], "neither a number"),
    ],
)
def test_refused_in_one_line(arguments: list[str], words: str, refused: Callable[[list[str], str], None]) -> None:
    refused(arguments, words)
