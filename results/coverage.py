"""How often the 95 % interval of an accuracy holds the truth: python results/coverage.py [STUDIES]

Simulated the way reality is: all seeds meet the same test images, some images are hard for every seed, seeds differ in quality, single
answers flip. Prints the table that docs/concepts/statistics.md shows, beside Student's t over the seeds alone.
"""

from __future__ import annotations

import sys
from statistics import NormalDist

import numpy as np
from scipy import stats

from vitral.base.text import percent, table
from vitral.study.fight.statistics import accuracy_interval

SETTINGS = {"seeds alike": (0.0, 0.3), "seeds alike, many flips": (0.0, 0.8), "seeds differ": (0.03, 0.5), "seeds differ much": (0.15, 0.5)}
"""Spread of the seeds' quality and of single answers, where images differ by 1."""


def coverage(seeds: int, images: int, accuracy: float, spread: float, flips: float, studies: int) -> tuple[float, float]:
    """(of our interval, of Student's t over the seeds' accuracies)."""
    rng, covered = np.random.default_rng(0), np.zeros(2)
    level = NormalDist().inv_cdf(accuracy) * np.sqrt(1 + spread**2 + flips**2)
    student = stats.t.ppf(0.975, seeds - 1)
    for _ in range(studies):
        ease = (
            level + rng.standard_normal(images, dtype=np.float32) + np.float32(spread) * rng.standard_normal((seeds, 1), dtype=np.float32)
        )
        correct = ease + np.float32(flips) * rng.standard_normal((seeds, images), dtype=np.float32) > 0
        ours, by_seed = accuracy_interval(correct), correct.mean(axis=1)
        half = student * by_seed.std(ddof=1) / np.sqrt(seeds)
        covered += ours.low <= accuracy <= ours.high, abs(by_seed.mean() - accuracy) <= half
    return tuple(covered / studies)  # type: ignore[return-value]


def main() -> None:
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rows = []
    for images, accuracy in ((360, 0.99), (1000, 0.94), (10_000, 0.7), (10_000, 0.97)):
        for seeds in (2, 3, 5):
            shares = [coverage(seeds, images, accuracy, *setting, studies) for setting in SETTINGS.values()]
            rows.append([f"{images:,}", percent(accuracy, 0), str(seeds), *(f"{100 * a:.1f} ({100 * b:.0f})" for a, b in shares)])
    print(table(rows, ["pictures", "accuracy", "seeds", *SETTINGS], "r", markdown=True))


if __name__ == "__main__":
    main()
