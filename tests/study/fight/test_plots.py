"""What the pictures of a study show of its numbers."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from vitral.draw.curves import Line, line_chart
from vitral.presets import model
from vitral.study.fight.conduct import Conducted
from vitral.study.fight.experiment import Budget, Experiment
from vitral.study.fight.plots import draw_compare, draw_compute, draw_data, points, side_by_side
from vitral.study.fight.statistics import Interval, power_law_fit
from vitral.study.fight.table import Outcome, Table, row

sys.path.insert(0, str(Path(__file__).parent))
import drive

CELL = Outcome("c", "vit", 0, 1e-3, 0.9, 0.3, 0.9, 100, 100, 1e6, 100, 1.0, 100, "digits")
PAIR = [CELL, dataclasses.replace(CELL, seed=1, accuracy=0.8)]
VIT = row(PAIR, Interval(0.85, 0.7, 0.95, 2))
STUDY = Experiment("compare", (drive.contender("vit", model("digits"), 1),), Budget("samples", 1000), images=100, seeds=(0, 1))


def conducted(folder: Path) -> Conducted:
    """A study whose cells were right as often as they say, on ten pictures."""
    done = Conducted(STUDY, folder, ())
    object.__setattr__(done, "right", lambda cells: np.array([np.arange(10) < round(10 * cell.accuracy) for cell in cells]))
    return done


def write_journal(folder: Path) -> None:
    (folder / "cells" / "c").mkdir(parents=True)
    lines = [{"step": step, "epoch": step, "split": "train", "accuracy": 0.5, "loss": 1.0} for step in (1, 2)]
    (folder / "cells" / "c" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_an_interval_shows_at_a_single_point() -> None:
    mark, bar = points([VIT])
    assert (mark.x, mark.y, mark.label) == ([1e6], [VIT.mean], "vit")
    assert bar.x == [1e6, 1e6] and tuple(bar.y) == VIT.interval and not bar.markers and bar.colour == mark.colour
    assert len(points([row([CELL], None)])) == 1


def test_intervals_of_equal_flops_do_not_hide_each_other() -> None:
    dear = dataclasses.replace(VIT, model="cnn", training_flops=1e8)
    first, second, third, *bars = points([VIT, dear, dataclasses.replace(VIT, model="vit strong")])
    assert first.x == [1e6] and second.x == [1e8] and third.x[0] == pytest.approx(1e6 * 100**0.02)
    assert [bar.x for bar in bars] == [[*mark.x] * 2 for mark in (first, second, third)]
    assert side_by_side([3.0, 1.0, 2.0]) == [3.0, 1.0, 2.0]


@pytest.mark.parametrize("claim", [True, False])
def test_no_interval_is_spoken_of_where_there_is_none(tmp_path: Path, claim: bool) -> None:
    study = Experiment("compare", (drive.contender("vit", model("digits"), 1),), Budget("samples", 1000), images=100, seeds=(0, 1))
    write_journal(tmp_path)
    table = Table((VIT if claim else row(PAIR, None),))
    draw_compare(Conducted(study, tmp_path, (CELL,)), table)
    assert ("interval" in (tmp_path / "figures" / "accuracy.json").read_text()) == claim


def test_models_of_one_family_can_be_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Line] = []
    monkeypatch.setattr("vitral.study.fight.plots.line_chart", lambda lines, **options: drawn.extend(lines) or line_chart(lines, **options))
    families = {"vit": [CELL, dataclasses.replace(CELL, model="vit-small")], "cnn": [dataclasses.replace(CELL, model="cnn")]}
    draw_compute(conducted(tmp_path), families, "title")
    assert [(line.label, line.colour, line.marker) for line in drawn] == [("vit", 0, 0), ("vit-small", 0, 1), ("cnn", 1, 2)]


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_seed_has_no_band(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: int) -> None:
    notes: list[str] = []
    monkeypatch.setattr(
        "vitral.study.fight.plots.line_chart", lambda lines, **options: notes.append(options["note"]) or line_chart(lines, **options)
    )
    cells = [
        dataclasses.replace(CELL, seed=seed, size=size, accuracy=0.9 - size**-0.5 + 0.01 * seed)
        for size in (10, 100)
        for seed in range(seeds)
    ]
    fit = power_law_fit([10, 100], np.array([[1 - cell.accuracy for cell in cells if cell.seed == seed] for seed in range(seeds)]))
    draw_data(conducted(tmp_path), {"vit": cells}, {"vit": fit}, {}, "title")
    draw_compute(conducted(tmp_path), {"vit": cells}, "title")
    assert len(notes) == 3 and all(("band" in note) == (seeds > 1) for note in notes)


@pytest.mark.parametrize(("budget", "drawn"), [(Budget("samples", 1000), True), (Budget("flops", 1e6), False)])
def test_flops_are_an_axis_only_where_they_differ(tmp_path: Path, budget: Budget, drawn: bool) -> None:
    study = dataclasses.replace(STUDY, budget=budget)
    write_journal(tmp_path)
    paths = draw_compare(Conducted(study, tmp_path, (CELL,)), Table((VIT,)))
    assert any("flops" in path for path in paths) == drawn
    paths = draw_compare(
        Conducted(study, tmp_path, (CELL, dataclasses.replace(CELL, model="post"))),
        Table((VIT, row([dataclasses.replace(cell, model="post") for cell in PAIR], None))),
    )
    assert not any("flops" in path for path in paths), "the same model twice"


def test_a_probe_is_called_one(tmp_path: Path) -> None:
    write_journal(tmp_path)
    probed = dataclasses.replace(STUDY, contenders=(dataclasses.replace(STUDY.contenders[0], probed=True),))
    for study, words in ((STUDY, '1,000 samples"'), (probed, '1,000 samples, linear probe"')):
        draw_compare(Conducted(study, tmp_path, (CELL,)), Table((VIT,)))
        assert words in (tmp_path / "figures" / "accuracy.json").read_text()
