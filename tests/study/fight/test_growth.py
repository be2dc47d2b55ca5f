from __future__ import annotations

import numpy as np
import pytest

from vitral.study.fight.growth import GapChange, gap_changes, gaps, thin_remarks
from vitral.study.fight.statistics import compare_pairs, power_law_fit


def right(share: float, rng: np.random.Generator, seeds: int = 3, images: int = 2000) -> np.ndarray:
    return rng.random((seeds, images)) < share


def changes(first: dict[str, np.ndarray], last: dict[str, np.ndarray]) -> list[GapChange]:
    return gap_changes(compare_pairs(gaps(first, last)))


def test_a_gap_that_closes_one_that_widens_and_one_that_stays() -> None:
    rng = np.random.default_rng(0)
    first = {"cnn": right(0.80, rng), "vit": right(0.60, rng), "hybrid": right(0.70, rng)}
    last = {"cnn": right(0.90, rng), "vit": right(0.85, rng), "hybrid": right(0.80, rng)}
    closing, staying, widening = changes(first, last)
    assert (closing.a, closing.b) == ("cnn", "vit") and "the gap closes" in str(closing) and 0.1 < closing.gained < 0.2
    assert closing.at_most and "p ≤ " in str(closing), "every draw agrees: more of them might say less"
    assert not staying.at_most and "p = " in str(staying)
    assert (staying.a, staying.b) == ("cnn", "hybrid") and "not told apart from no change" in str(staying)
    assert (widening.a, widening.b) == ("hybrid", "vit"), "vit passes it: the lead changes its sign"
    assert widening.is_significant and "the order turns" in str(widening), "a gap that was passed is no longer one"
    assert widening.lead[0] > 0 > widening.lead[1] and widening.interval[0] < widening.gained < widening.interval[1]
    worse = changes({"a": first["cnn"], "b": first["vit"]}, {"a": last["cnn"], "b": first["vit"]})[0]
    assert "the gap widens" in str(worse) and worse.to_dict()["gained"] < 0


def test_gaps_are_counted_with_the_other_tests_of_the_page() -> None:
    rng = np.random.default_rng(1)
    first = {"cnn": right(0.80, rng), "vit": right(0.60, rng)}
    last = {"cnn": right(0.90, rng), "vit": right(0.85, rng)}
    (alone,) = changes(first, last)
    tested = compare_pairs({64: first, 1024: last, **gaps(first, last, "fine-tuned")})
    (counted,) = gap_changes(tested, "fine-tuned")
    assert not gap_changes(tested) and counted.p == alone.p and alone.adjusted == alone.p
    assert counted.adjusted == pytest.approx(3 * counted.p) == tested[64][0].adjusted, "a gap and two pairs"


def test_one_seed_or_a_missing_one_is_left_out() -> None:
    rng = np.random.default_rng(0)
    one, three = right(0.5, rng, seeds=1), right(0.5, rng)
    assert not gaps({"a": one, "b": one}, {"a": one, "b": one})
    assert not gaps({"a": three, "b": three}, {"a": three, "b": three[:2]})


def test_a_line_through_two_points_shows_no_power_law() -> None:
    errors = np.array([[0.4, 0.2, 0.1], [0.5, 0.2, 0.1]])
    fits = {"vit": power_law_fit([10, 100, 1000], errors), "cnn": power_law_fit([10, 100], errors[:, :2])}
    assert thin_remarks(fits) == ["The line of cnn has two points, which every line fits: that it is a power law is not shown."]
    assert thin_remarks({"vit": fits["vit"]}) == []
