"""The part of a page that shows how a model did."""

from __future__ import annotations

from pathlib import Path

from vitral.report.test_results import results_section

TEST = {
    "pictures": 10, "skipped": 2, "top1": 0.9, "top5": 1.0, "balanced_accuracy": 0.9, "f1": 0.899, "confusion": [[4, 1], [0, 5]],
    "per_class": {"a": 1.0, "b": 0.8, "none": None}, "precision": {"a": 0.75, "b": None}, "f1_per_class": {"a": 0.85, "b": 0.5},
    "calibration": {"error": 0.05, "confidence": [0.1, 0.9], "accuracy": [0.0, 0.95], "count": [0, 10]},
}  # fmt: skip


def test_scores_and_classes(tmp_path: Path) -> None:
    part = results_section(TEST, tmp_path, tmp_path / "page.html", notes := [])
    assert part["scores"]["F1 (mean of the classes)"] == "89.9 %" and part["scores"]["unreadable"] == 2
    assert part["classes"] == [["b", "80.0 %", "–", "50.0 %"], ["a", "100.0 %", "75.0 %", "85.0 %"]]
    assert len(part["figures"]) == 2 and part["gallery"] == [] and notes == []


def test_an_older_test_has_what_it_has(tmp_path: Path) -> None:
    part = results_section({"pictures": 3, "top1": 0.5}, tmp_path, tmp_path / "page.html", [])
    assert part["scores"] == {"pictures": 3, "right at first guess": "50.0 %"} and part["classes"] == []
    assert "could not be drawn" in part["figures"][0]
