"""What the pictures of a study show of its numbers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from vitral.config import DataConfig
from vitral.presets import model
from vitral.study.execute import Executed
from vitral.study.figures import draw_compare, points
from vitral.study.plan import Budget, Contender, Study
from vitral.study.table import Outcome, Table, row

CELL = Outcome("c", "vit", 0, 1e-3, 0.9, 0.3, 0.9, 100, 100, 1e6, 100, 1.0, 100, "digits")
VIT = row([CELL, dataclasses.replace(CELL, seed=1, accuracy=0.8)])


def test_an_interval_shows_at_a_single_point() -> None:
    mark, bar = points([VIT])
    assert (mark.x, mark.y, mark.label) == ([1e6], [VIT.mean], "vit")
    assert bar.x == [1e6, 1e6] and tuple(bar.y) == VIT.interval and not bar.markers and bar.colour == mark.colour
    assert len(points([row([CELL])])) == 1


@pytest.mark.parametrize(("budget", "drawn"), [(Budget("samples", 1000), True), (Budget("flops", 1e6), False)])
def test_flops_are_an_axis_only_where_they_differ(tmp_path: Path, budget: Budget, drawn: bool) -> None:
    study = Study("compare", DataConfig(), (Contender("vit", model("digits"), 1),), budget, pictures=100, seeds=(0, 1))
    (tmp_path / "cells" / "c").mkdir(parents=True)
    lines = [{"step": step, "epoch": step, "split": "train", "accuracy": 0.5, "loss": 1.0} for step in (1, 2)]
    (tmp_path / "cells" / "c" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    paths = draw_compare(Executed(study, tmp_path, {}, {}, (CELL,), {}, {}), Table((VIT,)))
    assert any("flops" in path for path in paths) == drawn
