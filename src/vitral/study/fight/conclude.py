"""One honest paragraph: what a comparison shows, what it leaves open, and what it cannot say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from vitral.base.text import percent
from vitral.study.fight.statistics import DRAWS, holm, paired_bootstrap
from vitral.study.fight.table import Row

K = TypeVar("K")
LEVEL = 0.05
DRAWS_A_TEST = 100
"""Bootstrap draws for each test of a page, where that is more than `DRAWS`."""


@dataclass(frozen=True)
class Pair:
    """Two models on the same test pictures."""

    a: str
    b: str
    difference: float
    """Accuracy of a minus accuracy of b."""
    interval: tuple[float, float]
    p: float
    """Paired bootstrap over test pictures, with the seeds' spread."""
    adjusted: float
    """After Holm, for the number of tests."""
    pictures: int
    seeds: tuple[int, int]
    at_most: bool = False
    """The bootstrap ends here: `adjusted` is at most this, and cannot be told smaller."""
    bound: float = 0.0
    """The smallest `p` that the bootstrap can tell."""

    @property
    def told_p(self) -> str:
        return told_p(self.adjusted, self.at_most)

    @property
    def different(self) -> bool:
        return self.adjusted < LEVEL

    @property
    def ranked(self) -> tuple[str, str]:
        """(better, worse) by the means."""
        return (self.a, self.b) if self.difference > 0 else (self.b, self.a)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "different": self.different, "test": "paired bootstrap, Holm"}


def told_p(p: float, at_most: bool) -> str:
    """`p = 0.012`, or `p ≤ 0.003` where the bootstrap ends."""
    return f"p {'≤' if at_most else '='} {p:.2g}"


def compare_pairs(groups: Mapping[K, Mapping[str, np.ndarray]]) -> dict[K, list[Pair]]:
    """All pairs of models in each group (a size, a budget, a data set); a group holds (S, N) booleans over the same test pictures.

    Holm counts the pairs of all groups that are given at once: who reads one page reads all of its tests.
    """
    asked = [(place, a, b) for place, correct in groups.items() for a, b in combinations(correct, 2)]
    # With many tests the smallest p that the draws can tell, times their number, must still lie below the level.
    draws = max(DRAWS, DRAWS_A_TEST * len(asked))
    tested = [paired_bootstrap(groups[place][a], groups[place][b], draws=draws) for place, a, b in asked]
    out: dict[K, list[Pair]] = {place: [] for place in groups}
    for (place, a, b), test, (p, at_most) in zip(asked, tested, adjust([(test.p, test.bound) for test in tested]), strict=True):
        ends = (test.low, test.high)
        out[place].append(Pair(a, b, test.difference, ends, test.p, p, test.images, test.seeds, at_most, test.bound))
    return out


def adjust(tests: Sequence[tuple[float, float]]) -> list[tuple[float, bool]]:
    """(p, the smallest that its bootstrap can tell) → (p after Holm over all of them, whether no more is known than that bound)."""
    adjusted = holm([p for p, _ in tests])
    return [(p, p <= bound * len(tests)) for p, (_, bound) in zip(adjusted, tests, strict=True)]


def how_tested(tests: int) -> list[str]:
    """How many tests a page shows, and that they were counted together."""
    if not tests:
        return []
    number = "one test" if tests == 1 else f"all {tests} tests"
    return [f"(Paired bootstrap over test pictures with the seeds' spread, Holm over {number} of this study.)"]


def conclude(
    rows: Sequence[Row],
    pairs: Sequence[Pair],
    *,
    data: str,
    budget: str,
    remarks: Sequence[str] = (),
    failed: int = 0,
    shared: int = 1,
    pretrained: bool = False,
    claim: bool = True,
) -> str:
    """What can and what cannot be concluded. `remarks` are on the tuning and the length of the runs; `claim`: tests were asked for.

    `shared`: cells that ran side by side against the clock; `pretrained`: some model started from weights.
    """
    best = max(rows, key=lambda row: row.mean)
    sentences = []
    if len(rows) == 1:
        sentences.append(f"{best.model} reaches {percent(best.mean)} on {data} at {budget}; there is one model: nothing can be compared.")
    elif not pairs:
        tested = "some model has one seed" if claim else "no test was asked for"
        why = tested if any(row.seeds > 1 for row in rows) else "each model has one seed"
        sentences.append(
            f"{best.model} has the highest accuracy on {data} at {budget} ({percent(best.mean)}), but {why}: "
            "nothing can be concluded about a difference between models."
        )
    else:
        seeds = min(row.seeds for row in rows)
        tests = f"{len(pairs)} pair{'s' if len(pairs) > 1 else ''}, {pairs[0].pictures:,} test pictures, {seeds} seeds each"
        for found in (_different(pairs), _alike(pairs)):
            sentences += found
        sentences.append(f"(Paired bootstrap over test pictures with the seeds' spread, Holm over {tests}.)")
    if agreed := [row.model for row in rows if len(set(row.accuracies)) == 1 and row.interval]:
        sentences.append(f"All seeds of {', '.join(agreed)} are equally right: their interval is that of the pictures alone.")
    sentences += remarks
    if failed:
        sentences.append(missing(failed))
    if shared > 1:
        sentences.append(f"Up to {shared} cells shared the device, so a second here is less than a second alone; it is so for every model.")
    other = "other weights to start from" if pretrained else "pretrained weights"
    sentences.append(
        f"This holds for {data}, {budget} and these settings; it says nothing about more data, longer training, other recipes or {other}."
    )
    return " ".join(sentences)


def missing(failed: int) -> str:
    return f"{failed} cell{'s' if failed > 1 else ''} failed and {'are' if failed > 1 else 'is'} missing."


def _different(pairs: Sequence[Pair]) -> list[str]:
    out = []
    for pair in pairs:
        if pair.different:
            low, high = sorted(abs(end) * 100 for end in pair.interval)
            points = f"{abs(pair.difference) * 100:.2f} points ({low:.2f} to {high:.2f}, {pair.told_p})"
            out.append(f"{pair.ranked[0]} is better than {pair.ranked[1]} by {points}.")
    return out


def _alike(pairs: Sequence[Pair]) -> list[str]:
    alike = [pair for pair in pairs if not pair.different]
    if not alike:
        return []
    listed = ", ".join(f"{pair.a} and {pair.b} ({pair.difference * 100:+.2f} points, {pair.told_p})" for pair in alike)
    return [f"Not told apart: {listed}; that is no proof that they are equal."]
