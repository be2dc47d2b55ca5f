"""The part of a page that shows how a model did."""

from __future__ import annotations

import re
from pathlib import Path

from vitral.report.test_results import results_sections

TEST = {
    "pictures": 10, "skipped": 2, "top1": 0.9, "top5": 1.0, "balanced_accuracy": 0.9, "f1": 0.899, "confusion": [[4, 1], [0, 5]],
    "per_class": {"a": 1.0, "b": 0.8, "none": None}, "precision": {"a": 0.75, "b": None}, "f1_per_class": {"a": 0.85, "b": 0.5},
    "calibration": {"error": 0.05, "confidence": [0.1, 0.9], "accuracy": [0.0, 0.95], "count": [0, 10]},
}  # fmt: skip


def test_scores_and_classes(tmp_path: Path) -> None:
    (section,) = results_sections(TEST, tmp_path, tmp_path / "page.html", notes := [])
    values, figures, classes = section.parts
    assert (
        notes == []
        and "F1 (mean of the classes)" in values
        and "89.9 %" in values
        and '<th scope="row">unreadable</th><td>2</td>' in values
    )
    assert figures.count("<img") == 2
    rows = re.findall(r"<tr><td>(.*?)</tr>", classes)
    assert [re.findall(r"[^<>]+(?=</td>)", row) for row in rows] == [
        ["b", "80.0 %", "–", "50.0 %"],
        ["a", "100.0 %", "75.0 %", "85.0 %"],
    ]


def test_an_older_test_has_what_it_has(tmp_path: Path) -> None:
    (section,) = results_sections({"pictures": 3, "top1": 0.5}, tmp_path, tmp_path / "page.html", [])
    values, figures = section.parts
    assert values.count("<tr>") == 2 and "right at first guess" in values and "50.0 %" in values
    assert "could not be drawn" in figures
