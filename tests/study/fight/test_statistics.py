"""Statistics against simulation: what they promise must hold in thousands of studies whose truth is known."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from vitral.base.errors import UsageError
from vitral.study.fight.statistics import accuracy_interval, crossing, holm, images_interval, mean_interval, paired_bootstrap, power_law_fit

STUDIES = 2000


def simulate(seeds: int, images: int, accuracy: float, spread: float, flips: float, studies: int) -> float:
    """Share of studies whose interval holds the truth, drawn as in reality: all seeds meet the same images, of which some are hard for
    all; seeds differ in quality by `spread`, and single answers flip."""
    scale = np.sqrt(1 + spread**2 + flips**2)
    level = NormalDist().inv_cdf(accuracy) * scale
    rng, covered = np.random.default_rng(0), 0
    for _ in range(studies):
        ease = (
            level + rng.standard_normal(images, dtype=np.float32) + np.float32(spread) * rng.standard_normal((seeds, 1), dtype=np.float32)
        )
        found = accuracy_interval(ease + np.float32(flips) * rng.standard_normal((seeds, images), dtype=np.float32) > 0)
        covered += found.low <= accuracy <= found.high
    return covered / studies


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize(("images", "accuracy", "spread", "flips"), [(360, 0.94, 0.03, 0.3), (1000, 0.7, 0.15, 0.8)])
def test_the_interval_covers_the_truth(seeds: int, images: int, accuracy: float, spread: float, flips: float) -> None:
    assert 0.92 <= simulate(seeds, images, accuracy, spread, flips, 600) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("images", [360, 1000, 10_000])
def test_the_interval_covers_the_truth_from_360_to_10000_images(seeds: int, images: int) -> None:
    """93 to 97 % in the mean of the settings; results/coverage.py makes the table of all of them."""
    settings = [(accuracy, spread, flips) for accuracy in (0.7, 0.94, 0.97) for spread in (0.0, 0.03, 0.15) for flips in (0.3, 0.8)]
    found = [simulate(seeds, images, *setting, 300) for setting in settings]
    assert 0.93 <= np.mean(found) <= 0.97 and min(found) > 0.89


def test_seeds_alone_would_say_too_much() -> None:
    """Three seeds that agree on every image: their spread is zero, and the images are as few as before."""
    same = np.repeat(np.arange(360)[None] < 356, 3, axis=0)
    found = accuracy_interval(same)
    wilson = [0.972, 0.996]
    assert [found.low, found.high] == pytest.approx(wilson, abs=2e-3) and found.n == 3 and found.mean == pytest.approx(356 / 360)
    every = accuracy_interval(np.ones((5, 360), bool))
    assert every.high == pytest.approx(1) and every.low == pytest.approx(360 / (360 + 1.96**2), abs=1e-4)


def test_the_interval_of_seeds_alone_by_hand() -> None:
    """Images that are all alike: what is left is Student's t over the seeds."""
    rng = np.random.default_rng(0)
    correct = rng.random((3, 200_000)) < np.array([[0.49], [0.50], [0.51]])
    found = accuracy_interval(correct)
    assert found.high - found.low == pytest.approx(2 * 4.302653 * correct.mean(axis=1).std(ddof=1) / np.sqrt(3), rel=0.02)


def test_one_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="1 seed"):
        accuracy_interval(np.ones((1, 10)))
    with pytest.raises(UsageError, match="seed"):
        paired_bootstrap(np.ones(10), np.zeros(10))
    assert paired_bootstrap(np.ones(10), np.zeros(10), claim=False).difference == 1


def _false_alarms(seeds: int, seed_spread: float, flips: float, pictures: int = 1000) -> float:
    """Share of studies that call two equal models different. Pictures differ in difficulty, seeds in quality, and single pictures flip."""
    rng = np.random.default_rng(1)
    alarms = 0
    for study in range(STUDIES):
        ease = rng.normal(1.3, 1, pictures)
        own = rng.normal(0, 0.5, (2, pictures))  # each model finds other pictures easy
        quality = rng.normal(0, seed_spread, (2, seeds, 1))
        correct = ease + own[:, None] + quality + rng.normal(0, flips, (2, seeds, pictures)) > 0
        alarms += paired_bootstrap(correct[0], correct[1], draws=500, seed=study, claim=seeds > 1).p < 0.05
    return alarms / STUDIES


@pytest.mark.parametrize(("seeds", "seed_spread", "flips"), [(1, 0.0, 0.0), (3, 0.0, 0.5), (3, 0.15, 0.3), (5, 0.1, 0.5)])
def test_paired_test_false_alarm_rate(seeds: int, seed_spread: float, flips: float) -> None:
    assert 0.025 <= _false_alarms(seeds, seed_spread, flips) <= 0.065


@pytest.mark.parametrize(("seed_spread", "flips", "pictures"), [(0.2, 1.0, 360), (0.1, 1.0, 1000)])
def test_two_seeds_are_on_the_safe_side(seed_spread: float, flips: float, pictures: int) -> None:
    assert _false_alarms(2, seed_spread, flips, pictures) <= 0.035


def test_paired_test_finds_a_real_difference() -> None:
    rng = np.random.default_rng(2)
    better, worse = rng.random((3, 2000)) < 0.92, rng.random((3, 2000)) < 0.85
    result = paired_bootstrap(better, worse)
    assert result.p < 0.01 and result.low > 0.03 and result.high < 0.11
    assert paired_bootstrap(worse, better).difference == pytest.approx(-result.difference)
    assert paired_bootstrap(better, better).p == 1.0


def test_pictures_must_be_the_same() -> None:
    with pytest.raises(UsageError, match="paired"):
        paired_bootstrap(np.ones((3, 10)), np.ones((3, 11)))


def test_interval_of_few_numbers_holds_the_truth_as_often_as_it_says() -> None:
    """And a bootstrap's does not: with four numbers its 95 % are 80."""
    rng = np.random.default_rng(3)
    draws = rng.random((2000, 4))
    found = [mean_interval(values) for values in draws]
    assert np.mean([one.low <= 0.5 <= one.high for one in found]) > 0.91
    means = draws[:, rng.integers(0, 4, (200, 4))].mean(axis=2)  # (2000, R)
    low, high = np.quantile(means, [0.025, 0.975], axis=1)
    assert np.mean((low <= 0.5) & (high >= 0.5)) < 0.85
    by_hand = mean_interval(np.array([1.0, 2.0, 3.0]))
    assert (by_hand.mean, by_hand.n) == (2, 3) and by_hand.high - 2 == pytest.approx(4.302653 / np.sqrt(3))
    with pytest.raises(UsageError, match="interval"):
        mean_interval(np.ones(1))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_power_law_recovers_planted_exponents() -> None:
    rng = np.random.default_rng(3)
    sizes = np.array([500, 1000, 2500, 5000, 15000, 45000])
    covered, found = 0, []
    for study in range(STUDIES):
        planted = rng.uniform(0.1, 0.6)
        errors = 5 * sizes**-planted * np.exp(rng.normal(0, 0.05, (3, 6)))
        fit = power_law_fit(sizes, errors, draws=200, seed=study)
        found.append(fit.b - planted)
        assert fit.b_interval is not None
        covered += fit.b_interval[0] <= planted <= fit.b_interval[1]
    assert abs(np.mean(found)) < 0.002 and np.std(found) < 0.02
    assert 0.90 <= covered / STUDIES <= 0.97


def _exponents_covered(errors: tuple[float, ...], spread: float, flips: float, images: int, studies: int) -> float:
    """Share of studies whose interval holds the exponent: three seeds, and all sizes and seeds meet the same images."""
    sizes = 100.0 * 4 ** np.arange(len(errors))
    level = np.array([NormalDist().inv_cdf(1 - error) for error in errors])[:, None] * np.sqrt(1 + spread**2 + flips**2)
    truth = -np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    rng, covered = np.random.default_rng(0), 0
    for study in range(studies):
        ease = level + rng.standard_normal(images) + spread * rng.standard_normal((3, len(errors), 1))
        wrong = ease + flips * rng.standard_normal((3, len(errors), images)) < 0  # (S, K, N)
        fit = power_law_fit(sizes, wrong.mean(axis=2), wrong.mean(axis=0), draws=300, seed=study, floor=1e-4)
        assert fit.b_interval is not None
        covered += fit.b_interval[0] <= truth <= fit.b_interval[1]
    return covered / studies


@pytest.mark.parametrize(("errors", "spread", "flips"), [((0.1, 0.05, 0.025), 0.0, 0.3), ((0.3, 0.1, 0.03), 0.15, 0.5)])
def test_the_interval_of_an_exponent_carries_the_test_images(errors: tuple[float, ...], spread: float, flips: float) -> None:
    """Over seeds alone it holds the truth in 0.68 and 0.86 of the studies."""
    assert _exponents_covered(errors, spread, flips, 360, 400) >= 0.93


def test_the_same_images_move_every_model_alike() -> None:
    """So a crossing of two models of which one has twice the errors of the other is as sure as their distance."""
    rng = np.random.default_rng(5)
    wrong = (rng.random(2000) < np.array([[0.4], [0.2]])).astype(float)  # (K, N)
    first, second = (power_law_fit([100, 1000], np.repeat(wrong.mean(axis=1)[None], 2, axis=0), wrong) for _ in range(2))
    assert first.b_interval is not None and first.b_interval[0] < first.b < first.b_interval[1]
    assert np.array_equal(first.draws, second.draws)


def test_power_law_bands_and_residual() -> None:
    sizes = [10, 100, 1000]
    exact = power_law_fit(sizes, np.array([[2 * n**-0.5 for n in sizes]] * 3))
    assert exact.a == pytest.approx(2) and exact.b == pytest.approx(0.5) and exact.residual < 1e-9
    low, high = exact.band(np.array([50.0])) or ([], [])
    assert low[0] == pytest.approx(high[0]) == pytest.approx(2 * 50**-0.5)
    bent = power_law_fit(sizes, np.array([[0.9, 0.88, 0.1]]))
    assert bent.residual > 0.5
    assert np.isfinite(power_law_fit(sizes, np.array([[0.1, 0.01, 0.0]])).b)


def test_crossing() -> None:
    sizes = np.array([100.0, 1000, 10000, 100000])
    rng = np.random.default_rng(4)
    noise = np.exp(rng.normal(0, 0.01, (2, 3, 4)))
    steep = power_law_fit(sizes, 10 * sizes**-0.5 * noise[0])
    flat = power_law_fit(sizes, 1 * sizes**-0.2 * noise[1])
    meet = crossing(steep, flat)
    truth = 10 ** (1 / 0.3)
    assert meet.at == pytest.approx(truth, rel=0.1)
    assert meet.interval is not None and meet.interval[0] < truth * 1.1 and meet.interval[1] > truth * 0.9
    assert str(meet).startswith("crossing at") and str(steep).startswith("falls as n^-0.5")
    noisy = [power_law_fit(sizes, 0.5 * np.exp(rng.normal(0, 0.2, (3, 4)))) for _ in range(2)]
    assert "does not fall measurably" in str(noisy[0]) and not str(crossing(*noisy)).startswith("crossing at")
    parallel = crossing(steep, power_law_fit(sizes, 20 * sizes**-0.5 * noise[1]))
    assert parallel.at is None and str(parallel).startswith("no crossing in range")


def test_one_seed_has_no_interval_and_establishes_nothing() -> None:
    sizes = [100, 1000, 10_000]
    steep, flat = (power_law_fit(sizes, np.array([errors])) for errors in ([0.6, 0.2, 0.06], [0.4, 0.25, 0.15]))
    assert steep.b_interval is None and steep.to_dict()["b_interval"] is None and steep.band(np.array([50.0])) is None
    assert str(steep) == "falls as n^-0.50 (one seed, no interval)"
    meet = crossing(steep, flat)
    assert meet.at is not None and meet.interval is None and meet.to_dict()["interval"] is None
    assert str(meet).startswith("the lines meet at ") and str(meet).endswith(" (one seed: not established)")


def test_a_crossing_that_only_the_fits_show_is_not_announced() -> None:
    sizes = [100, 1000, 10_000]
    first = power_law_fit(sizes, np.array([[0.50, 0.30, 0.20]] * 2))
    bent = power_law_fit(sizes, np.array([[0.52, 0.40, 0.10]] * 2))  # lower at the last size alone
    found = crossing(first, bent)
    assert found.at is not None and found.at < 1000 and not found.seen
    assert str(found).startswith("no crossing: the fits meet at")
    straight = power_law_fit(sizes, np.array([[0.60, 0.30, 0.15]] * 2))
    assert crossing(power_law_fit(sizes, np.array([[0.50, 0.31, 0.19]] * 2)), straight).seen


def test_the_interval_of_one_model_is_wilsons() -> None:
    all_right = images_interval(np.ones(20, dtype=bool))
    assert all_right.mean == all_right.high == 1.0 and all_right.low == pytest.approx(20 / (20 + 1.959964**2))
    half = images_interval(np.arange(1000) % 2 == 0)
    assert (half.low, half.high) == pytest.approx((0.5 - 0.0309, 0.5 + 0.0309), abs=1e-4)


def test_a_crossing_beyond_what_was_measured_is_told_up_to_the_reach() -> None:
    sizes, noise = [100.0, 1000.0], np.array([[0.999], [1.001]])
    slow, fast = (power_law_fit(sizes, noise * np.array([errors])) for errors in ((0.2, 0.1), (0.8, 0.12)))
    found = crossing(slow, fast, 3.0)
    assert found.at == pytest.approx(1417, rel=0.01) and found.is_beyond and found.interval is not None
    assert str(found).startswith("no crossing in range; carried on by a factor of 1.4 the lines would cross at 1,42")
    assert crossing(slow, fast).at is None and crossing(slow, fast, 1.2).at is None
    assert str(crossing(slow, fast, 1.2)).endswith("(100 to 1,000), nor up to 1.2 times that")
