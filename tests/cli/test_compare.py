"""The verb compare, as a user types it, and the report of what it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from vitral.build import create
from vitral.cli import main
from vitral.weights.checkpoint import save

COMPARE = ["compare", "digits", "--models", "vit-small,hybrid", "--budget", "samples=128", "--seeds", "2", "--batch-size", "64"]
COMPARE += ["--lrs", "3e-3", "--parallel", "1", "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verbs") / "fight"
    assert main([*COMPARE, "--out", str(folder)]) == 0
    return folder


def test_compare_json(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main([*COMPARE, "--out", str(study), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["data"] == "digits" and result["budget"] == "samples=128"
    assert {"model", "seeds", "mean", "interval", "parameters", "flops", "seconds", "memory"} <= set(result["rows"][0])
    assert [row["model"] for row in result["rows"]] == ["vit-small", "hybrid"] and len(result["pairs"]) == 1


def test_compare_text(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main([*COMPARE, "--out", str(study)]) == 0
    shown = capsys.readouterr().out
    assert "95 % interval" in shown and "vit-small: ViT (patch 2×2" in shown and "This holds for digits" in shown


def test_several_data_sets_from_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(create("tiny", width=24, depth=1, image_size=16), tmp_path / "weights")
    for label in ("dark", "light"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for index in range(20):
            Image.new("L", (16, 16), index + 200 * (label == "light")).save(tmp_path / "photos" / label / f"{index}.png")
    photos, out = f"folder:{tmp_path / 'photos'}", tmp_path / "both"
    arguments = ["compare", "digits", photos, "--from", f"mine={tmp_path / 'weights'}", "--tune", "head", "--budget", "samples=32"]
    arguments += [
        "--seeds",
        "2",
        "--batch-size",
        "16",
        "--lrs",
        "3e-3",
        "--parallel",
        "1",
        "--device",
        "cpu",
        "--quiet",
        "--out",
        str(out),
    ]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("model  digits ") and "the head learns" in shown and "Counted together" not in shown
    assert shown.count("mine reaches") == 2 and "other weights to start from" in shown
    assert f"| model | digits | {photos} |" in (out / "table.md").read_text()
    assert main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [row["data"] for row in result["rows"]] == ["digits", photos] and {row["model"] for row in result["rows"]} == {"mine"}
    assert all((out / name / "study.json").exists() for name in result["studies"].values())
    (out / "result.json").rename(tmp_path / "kept.json")
    assert main(["report", str(out)]) == 0 and "the study is not finished" in (out / "report.html").read_text()
    (tmp_path / "kept.json").rename(out / "result.json")
    assert main(["report", str(out)]) == 0 and "the head learns" in (out / "report.html").read_text()


def test_report(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["report", str(study), "--json"]) == 0
    page = Path(json.loads(capsys.readouterr().out)["path"]).read_text()
    assert "vit-small" in page and "This holds for digits" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "digits", "--seeds", "1", "--claim", "significance"], "one seed cannot carry a claim"),
        (["compare", "digits", "--budget", "miles=3"], "budget"),
        (["compare", "digits", "--models", "vitt"], "did you mean"),
        (["compare", "digits", "--models", "vit", "--from", "timm:x"], "names no model"),
        (["compare", "digits", "--lrs", "fast"], "not a list of numbers"),
        (["compare", "digits", "--tune", "head"], "without weights"),
        (["compare", "digits", "digits", "--models", "vit-small"], "named twice"),
        (["compare", "digits", "--budget", "flops=1e6"], "less than a batch"),
        (["compare", "digits", "--validation", "0"], "no validation pictures"),
        (["compare", "digits", "--models", "vit-small", "--parallel", "0"], "0 cells at a time"),
        (["compare", "digits", "--models", "vit-small", "--quiet", "--device", "cpu", "--max-hours", "1e-6"], "more than --max-hours"),
        (["compare", "digits", "--pretrain", "mae,untrained", "--quiet", "--device", "cpu", "--max-hours", "1e-6"], "than --max-hours"),
    ],
)
def test_refused_in_one_line(arguments: list[str], words: str, refused: Callable[[list[str], str], None]) -> None:
    refused(arguments, words)
