"""The page of a scoring."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from vitral.build import create
from vitral.cli import main
from vitral.weights.checkpoint import save


def test_a_scoring_leaves_a_page_with_its_pictures(tmp_path: Path, read: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    for name, grey in (("cat", 40), ("dog", 220)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (40, 30), (grey, 90, 10 * number)).save(tmp_path / "photos" / name / f"{number}.png")
    model = str(save(create("tiny", classes=2), tmp_path / "model"))
    assert main(["eval", model, f"folder:{tmp_path / 'photos'}", "--out", str(tmp_path / "scored"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    page = read(tmp_path / "scored" / "report.html")
    assert f"accuracy {100 * scores['top1']:.1f} % on 8 pictures (all)" in page.text and "vitral eval" in page.text
    assert len([tag for tag, facts in page.tags if tag == "a" and facts["href"].endswith(".png")]) >= 4 and "balanced accuracy" in page.text
    assert "Light on a picture is what speaks for the class named under it (relevance)" in page.text
    assert "for cat" in page.text and "for dog" in page.text
    assert len([tag for tag, facts in page.tags if tag == "input" and facts.get("aria-label", "").startswith("enlarge: for ")]) >= 8
    assert sorted(path.name for path in (tmp_path / "scored").iterdir()) == ["report.html", "test.json", "test.npz", "test.webp"]
