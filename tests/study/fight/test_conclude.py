from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vitral.presets import model
from vitral.study.fight.conclude import comparison_text, how_tested
from vitral.study.fight.experiment import Budget, Experiment
from vitral.study.fight.statistics import DRAWS, Interval, compare_pairs
from vitral.study.fight.table import Outcome, row

sys.path.insert(0, str(Path(__file__).parent))
import drive

CELL = Outcome("c", "vit", 0, 1e-3, 0.9, 0.3, 0.9, 100, 100, 1e6, 100, 1.0, 100, "digits")


def rows(**accuracies: tuple[float, ...]):
    return [
        row(
            [dataclasses.replace(CELL, model=name, seed=seed, accuracy=value) for seed, value in enumerate(values)],
            Interval(float(np.mean(values)), 0.5, 1.0, len(values)) if len(values) > 1 else None,
        )
        for name, values in accuracies.items()
    ]


def study(weights: str | None = None, **changes: Any) -> Experiment:
    vit = drive.contender("vit", model("digits"), 1)
    vit = dataclasses.replace(vit, run=dataclasses.replace(vit.run, weights=weights))
    return dataclasses.replace(Experiment("compare", (vit,), Budget("samples", 1000), images=1000), **changes)


def test_says_what_differs_what_does_not_and_what_it_cannot_say() -> None:
    rng = np.random.default_rng(0)
    correct = {"vit": rng.random((3, 1000)) < 0.8, "cnn": rng.random((3, 1000)) < 0.9, "hybrid": rng.random((3, 1000)) < 0.9}
    pairs = compare_pairs({"": correct})[""]
    assert [pair.different for pair in pairs] == [True, True, False]
    assert all(pair.adjusted >= pair.p for pair in pairs)
    made = rows(**{name: tuple(c.mean(axis=1)) for name, c in correct.items()})
    text = comparison_text(study(budget=Budget("seconds", 20)), made, pairs, ["The grid was small."], failed=1, shared=4)
    assert "cnn is better than vit by" in text and "vit is better" not in text
    assert "Not told apart: cnn and hybrid" in text and "no proof that they are equal" in text
    assert "The grid was small." in text and "1 cell failed" in text and "Up to 4 cells shared" in text
    assert "This holds for digits, 20 s" in text and "or pretrained weights" in text and "equally right" not in text


def test_every_pair_of_the_page_is_counted_and_a_bound_is_called_one() -> None:
    rng = np.random.default_rng(1)
    correct = {"vit": rng.random((3, 1000)) < 0.6, "cnn": rng.random((3, 1000)) < 0.9}
    alone = compare_pairs({1: correct})[1][0]
    both = compare_pairs({1: correct, 2: correct})
    assert alone.p == both[1][0].p == pytest.approx(2 / (DRAWS + 1)) and both[1][0].adjusted == pytest.approx(2 * alone.adjusted)
    assert alone.at_most and both[2][0].at_most and alone.p_text == "p ≤ 0.0005"
    close = compare_pairs({1: {"vit": rng.random((3, 1000)) < 0.88, "cnn": correct["cnn"]}})[1][0]
    assert not close.at_most and close.p_text.startswith("p = ")


def test_many_tests_can_still_be_told() -> None:
    """4,000 draws tell no p below 0.0005: of more than a hundred tests none could be told apart, whatever the models."""
    rng = np.random.default_rng(2)
    correct = {"vit": rng.random((5, 300)) < 0.3, "cnn": rng.random((5, 300)) < 0.9}
    tested = compare_pairs(dict.fromkeys(range(120), correct))
    assert all(pair.different and pair.at_most for (pair,) in tested.values())
    assert tested[0][0].bound == tested[0][0].p == pytest.approx(2 / (100 * 120 + 1))


def test_the_number_of_tests_is_told() -> None:
    assert not how_tested(0) and "Holm over one test of this study" in how_tested(1)[0] and "all 30 tests" in how_tested(30)[0]


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        ({"vit": (0.9,), "cnn": (0.8,)}, "each model has one seed: nothing can be concluded"),
        ({"vit": (0.9, 0.8), "cnn": (0.8,)}, "some model has one seed: nothing can be concluded"),
        ({"vit": (0.9, 0.8)}, "vit reaches 85.0 % on digits at 1,000 samples; there is one model: nothing can be compared"),
    ],
)
def test_one_seed_or_one_model_concludes_nothing(accuracies: dict, words: str) -> None:
    assert words in comparison_text(study(), rows(**accuracies), [])


def test_a_description_says_that_it_is_one() -> None:
    made = [dataclasses.replace(one, interval=None) for one in rows(vit=(0.9, 0.9), cnn=(0.8, 0.7))]
    text = comparison_text(study(claim="none"), made, [])
    assert "but no test was asked for: nothing can be concluded" in text and "one seed" not in text and "interval" not in text


def test_an_interval_of_no_width_is_not_taken_for_certainty() -> None:
    text = comparison_text(study(weights="x"), rows(vit=(1.0, 1.0), cnn=(0.9, 0.8)), [])
    assert "All seeds of vit are equally right" in text
    assert "or other weights to start from" in text and "pretrained weights" not in text
