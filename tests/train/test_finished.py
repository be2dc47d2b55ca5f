from __future__ import annotations

from pathlib import Path

from vitral.build import create
from vitral.train.finished import Run

LINES = [
    {"split": "train", "epoch": 1, "loss": 2.0, "accuracy": 0.1, "seconds": 1.0},
    {"split": "train", "epoch": 2, "loss": 1.0, "accuracy": 0.5, "seconds": 2.0},
    {"split": "test", "epoch": 2, "loss": 0.5, "accuracy": 0.75, "seconds": 2.0},
]


def test_it_shows_how_each_split_ended() -> None:
    run = Run(Path("runs/<mine>"), LINES, create("tiny", classes=2))
    assert repr(run) == "Run('runs/<mine>', 3 lines of metrics)", "not every line and every layer"
    shown = run._repr_html_()
    assert "<th>split</th><th>epoch</th><th>accuracy</th>" in shown and "runs/&lt;mine&gt;" in shown
    assert "<td>train</td><td>2</td><td>0.5</td>" in shown and "<td>test</td><td>2</td><td>0.75</td>" in shown
    assert run.test is LINES[-1] and "2 classes" in shown
