"""The statistics of a study, one method for each question.

How sure is a mean over seeds?        `accuracy_interval`: seeds and test images together, as Wilson's interval.
Is one model better than another?     `paired_bootstrap`: over the same test images, with the seeds' own spread added.
How does the error fall with data?    `power_law_fit`: error = a · n^-b by least squares on logs, bootstrap over seeds and test images.
Where do two such lines cross?        `crossing`.
How sure is a mean over few pictures? `mean_interval`: Student's t.

Shapes: S = seeds, N = test images, K = sizes, R = bootstrap draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from vitral.base.errors import UsageError
from vitral.base.text import percent, readable

_SURE = 0.95
"""Share of bootstrap draws that must cross in range before we speak of a crossing."""
_SEEDS_SHARE = 1.75
"""Power of the seeds' share of the variance in the quantile. In theory (images known, seeds' spread from S - 1 degrees of freedom) the
interval then covers 93.5 to 97.0 % with two seeds, 94.5 to 96.0 % with three, whatever the share; Satterthwaite's rule falls to 87.3 %."""
LEVEL = 0.05
"""p-values below it are significant."""
DRAWS = 4000
"""Bootstrap draws: a p-value of 0.05 is then known to about ± 0.004."""
_DRAWS_PER_TEST = 100
"""Bootstrap draws for each test of a page, where that is more than `DRAWS`."""
K = TypeVar("K")


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its interval."""

    mean: float
    low: float
    high: float
    n: int
    level: float = 0.95


def accuracy_interval(correct: np.ndarray, level: float = 0.95) -> Interval:
    """Where the accuracy of a *model* lies: over other seeds and other images of the same kind. `correct`: booleans (S, N).

    Seeds share one test set, so their spread alone says nothing of the images: the variance of the mean is what the seeds vary (Student's
    share) plus what the images vary that all seeds find alike hard (two-way analysis of variance). Between the normal quantile (images
    alone) and Student's (seeds alone) the quantile follows the seeds' share of the variance; `_SEEDS_SHARE` was set so that the interval
    covers for two seeds at every share. The variance enters Wilson's interval as the number of images it would take by chance alone, so
    that the interval stays inside 0 to 1, and is not empty where every answer is right.
    """
    from scipy import stats

    correct = np.asarray(correct, dtype=np.float64)
    if correct.ndim != 2 or len(correct) < 2:
        raise UsageError("an interval over 1 seed is not defined", "run at least 2 seeds, better 3")
    if not 0 < level < 1:
        raise UsageError(f"level {level} is not a probability", "use 0.95")
    seeds, images = correct.shape
    mean, by_seed, by_image = correct.mean(), correct.mean(axis=1), correct.mean(axis=0)
    between_seeds = ((by_seed - mean) ** 2).sum() / (seeds - 1) / seeds
    flips = ((correct - by_seed[:, None] - by_image + mean) ** 2).sum() / max(1, (seeds - 1) * (images - 1))
    between_images = max(0.0, seeds * ((by_image - mean) ** 2).sum() / max(1, images - 1) - flips) / (seeds * images)
    variance = between_seeds + between_images
    normal, student = stats.norm.ppf(0.5 + level / 2) ** 2, stats.t.ppf(0.5 + level / 2, seeds - 1) ** 2
    squared = normal + (student - normal) * (between_seeds / variance) ** _SEEDS_SHARE if variance > 0 else normal
    width = squared * variance / (mean * (1 - mean)) if variance > 0 else squared / images
    return Interval(float(mean), *_wilson(float(mean), width), seeds, level)


def images_interval(correct: np.ndarray, level: float = 0.95) -> Interval:
    """Where the accuracy of *these weights* lies, over other images of the same kind: Wilson's interval. `correct`: booleans (N,)."""
    from scipy import stats

    mean = float(np.mean(correct))
    return Interval(mean, *_wilson(mean, float(stats.norm.ppf(0.5 + level / 2)) ** 2 / len(correct)), 1, level)


def _wilson(mean: float, width: float) -> tuple[float, float]:
    """Inside 0 to 1, and not empty where every answer is right; `width`: the squared quantile over the number of images."""
    middle = (mean + width / 2) / (1 + width)
    half = math.sqrt(width * mean * (1 - mean) + width**2 / 4) / (1 + width)
    return float(max(0.0, middle - half)), float(min(1.0, middle + half))


@dataclass(frozen=True)
class Paired:
    """The difference of two models' accuracies (a - b) on the same test images."""

    difference: float
    low: float
    high: float
    p: float
    images: int
    seeds: tuple[int, int]
    level: float = 0.95
    bound: float = 0.0
    """The smallest p that this many draws can tell: a `p` that is no larger is an upper bound."""


def paired_bootstrap(
    correct_a: np.ndarray, correct_b: np.ndarray, *, level: float = 0.95, draws: int = DRAWS, seed: int = 0, claim: bool = True
) -> Paired:
    """Test whether two models differ: bootstrap over test images, with the spread between seeds added.

    `correct_*` are booleans (S, N), or (N,) for one seed; both models must have seen the same N images in the same order.
    One seed tells about two sets of weights, not about two models: it is refused unless `claim` is False.

    Two things vary: the images, which both models share, and the seeds. Each draw resamples the images; to it a
    Student-t draw is added for what the seeds' accuracies vary beyond chance flips of single images. (Resampling three
    seeds would give two thirds of their variance and no tails, and so too many false alarms.)
    """
    a, b = (np.atleast_2d(np.asarray(c, dtype=np.float64)) for c in (correct_a, correct_b))  # (S, N)
    if a.shape[1] != b.shape[1]:
        raise UsageError(f"{a.shape[1]} and {b.shape[1]} test pictures cannot be paired", "evaluate both models on the same test split")
    if claim and min(len(a), len(b)) < 2:
        raise UsageError("one seed cannot carry a claim of significance about two models", "run at least 2 seeds, better 3")
    rng = np.random.default_rng(seed)
    gain = a.mean(axis=0) - b.mean(axis=0)  # (N,)
    images = len(gain)
    values, counts = np.unique(gain, return_counts=True)
    means = rng.multinomial(images, counts / images, size=draws) @ values / images  # (R,)
    spread, freedom = _seed_spread(a, b)
    if spread > 0:
        means = means + math.sqrt(spread) * rng.standard_t(freedom, size=draws)
    low, high = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2])
    tail = min(np.count_nonzero(means <= 0), np.count_nonzero(means >= 0))
    p = min(1.0, 2 * (tail + 1) / (draws + 1))
    return Paired(float(gain.mean()), float(low), float(high), float(p), images, (len(a), len(b)), level, 2 / (draws + 1))


def mean_interval(values: np.ndarray, level: float = 0.95) -> Interval:
    """Student's, of the mean of N numbers, at least two. (A bootstrap of so few is too narrow: docs/concepts/statistics.md.)"""
    from scipy.stats import t

    count = len(values)
    if count < 2:
        raise UsageError("one number has no interval", "measure at least two pictures")
    mean, half = float(np.mean(values)), float(t.ppf(0.5 + level / 2, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
    return Interval(mean, mean - half, mean + half, count, level)


def _seed_spread(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Variance of the difference that comes from seeds as such, and its degrees of freedom (Welch).

    A seed's accuracy varies also because single images flip; that part is already in the images' bootstrap and is taken off. Two
    seeds know their spread too badly for that: often nothing would be left, and false alarms rise to 8 % at a level of 5 %.
    """
    extra, squares, total = 0.0, 0.0, 0.0
    for correct in (a, b):
        seeds, images = correct.shape
        if seeds < 2:
            continue
        between = correct.mean(axis=1).var(ddof=1) / seeds
        residual = correct - correct.mean(axis=1, keepdims=True) - correct.mean(axis=0) + correct.mean()
        flips = float((residual**2).sum()) / ((seeds - 1) * (images - 1)) / images / seeds if images > 1 else 0.0
        extra += between - (flips if seeds > 2 else 0.0)
        total += between
        squares += between**2 / (seeds - 1)
    return (extra, total**2 / squares) if extra > 0 and squares > 0 else (0.0, 1.0)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm): the chance of any false alarm among all of them stays at the level."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


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
    def p_text(self) -> str:
        return p_text(self.adjusted, self.at_most)

    @property
    def different(self) -> bool:
        return self.adjusted < LEVEL

    @property
    def ranked(self) -> tuple[str, str]:
        """(better, worse) by the means."""
        return (self.a, self.b) if self.difference > 0 else (self.b, self.a)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "different": self.different, "test": "paired bootstrap, Holm"}


def p_text(p: float, at_most: bool) -> str:
    """`p = 0.012`, or `p ≤ 0.003` where the bootstrap ends."""
    return f"p {'≤' if at_most else '='} {p:.2g}"


def compare_pairs(groups: Mapping[K, Mapping[str, np.ndarray]]) -> dict[K, list[Pair]]:
    """All pairs of models in each group (a size, a budget, a data set); a group holds (S, N) booleans over the same test pictures.

    Holm counts the pairs of all groups that are given at once: who reads one page reads all of its tests.
    """
    tests = [(group, a, b) for group, correct in groups.items() for a, b in combinations(correct, 2)]
    # With many tests the smallest p that the draws can tell, times their number, must still lie below the level.
    draws = max(DRAWS, _DRAWS_PER_TEST * len(tests))
    tested = [paired_bootstrap(groups[group][a], groups[group][b], draws=draws) for group, a, b in tests]
    out: dict[K, list[Pair]] = {group: [] for group in groups}
    for (group, a, b), test, (p, at_most) in zip(tests, tested, adjust([(test.p, test.bound) for test in tested]), strict=True):
        ends = (test.low, test.high)
        out[group].append(Pair(a, b, test.difference, ends, test.p, p, test.images, test.seeds, at_most, test.bound))
    return out


def adjust(tests: Sequence[tuple[float, float]]) -> list[tuple[float, bool]]:
    """(p, the smallest that its bootstrap can tell) → (p after Holm over all of them, whether no more is known than that bound)."""
    adjusted = holm([p for p, _ in tests])
    return [(p, p <= bound * len(tests)) for p, (_, bound) in zip(adjusted, tests, strict=True)]


@dataclass(frozen=True)
class PowerLaw:
    """error = a · n^-b, with the bootstrap's own (log a, b) pairs for bands."""

    a: float
    b: float
    b_interval: tuple[float, float] | None
    """None with one seed, which says nothing of how much another would differ."""
    sizes: tuple[float, ...]
    residual: float
    """Largest |log2(measured mean / fit)|: 0.1 is 7 % off, 1 is a factor of two."""
    measured: tuple[float, ...] = ()
    """Geometric mean of the errors over the seeds, at each size."""
    level: float = 0.95
    draws: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)), repr=False, compare=False)

    def error(self, n: float | np.ndarray) -> np.ndarray:
        return self.a * np.asarray(n, dtype=np.float64) ** -self.b

    def band(self, n: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Lower and upper error at each n; None with one seed."""
        if not len(self.draws):
            return None
        lines = np.exp(self.draws[:, :1] - self.draws[:, 1:] * np.log(np.asarray(n, dtype=np.float64)))  # (R, len(n))
        low, high = np.quantile(lines, [0.5 - self.level / 2, 0.5 + self.level / 2], axis=0)
        return low, high

    def __str__(self) -> str:
        """`falls as n^-0.35 (-0.41 to -0.30)`."""
        if self.b_interval is None:
            return f"{'falls' if self.b > 0 else 'rises'} as n^{-self.b:.2f} (one seed, no interval)"
        low, high = self.b_interval
        if low <= 0 <= high:
            return f"does not fall measurably with n (exponent between {-high:.2f} and {-low:.2f})"
        return f"{'falls' if self.b > 0 else 'rises'} as n^{-self.b:.2f} ({-high:.2f} to {-low:.2f})"

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("a", "b", "b_interval", "sizes", "residual", "level")}


def power_law_fit(
    sizes: Sequence[float] | np.ndarray,
    errors_by_seed: np.ndarray,
    wrong: np.ndarray | None = None,
    *,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
    floor: float = 1e-6,
) -> PowerLaw:
    """Fit error = a · n^-b to (S, K) errors at K sizes by least squares on logs; bands by bootstrap over seeds and test images.

    At each size the seeds are drawn anew. S draws from S values have only (S-1)/S of their variance and no tails, so deviations
    are widened by √(S/(S-1)) and by Student's t over the normal for K·(S-1) degrees of freedom. Errors below `floor` (no mistake
    at all on a finite test set) are lifted to it.

    `wrong` (K, N): how often each test image is got wrong, over the seeds; None: the bands are those of the seeds alone. All sizes and
    seeds meet the same images, so each draw weighs the images once for all of them (a normal weight each: logs are taken as linear, no
    draw is without a mistake), and the same for every model of as many images. Flips of single images are in the seeds' part too: the
    bands are on the safe side.
    """
    from scipy import stats

    n = np.asarray(sizes, dtype=np.float64)
    errors = np.atleast_2d(np.asarray(errors_by_seed, dtype=np.float64))  # (S, K)
    if n.ndim != 1 or errors.shape[1] != len(n) or len(n) < 2 or len(np.unique(n)) < 2:
        raise UsageError(
            f"a power law needs errors (seeds, sizes) at two different sizes or more, here {errors.shape} at {len(n)}", "add sizes"
        )
    if n.min() <= 0 or not np.isfinite(errors).all():
        raise UsageError("a power law needs positive sizes and finite errors", "leave out the cells that failed")
    logs = np.log(np.maximum(errors, floor))  # (S, K)
    design = np.stack([np.ones_like(n), -np.log(n)], axis=1)  # (K, 2)
    solve = np.linalg.pinv(design)  # (2, K)
    mean = logs.mean(axis=0)
    log_a, b = solve @ mean
    rng = np.random.default_rng(seed)
    seeds = len(logs)
    if seeds > 1:
        moved = _moved_by_images(wrong, rng, draws, floor) if wrong is not None else 0.0  # first: the same for every model
        tails = stats.t.ppf(0.5 + level / 2, len(n) * (seeds - 1)) / stats.norm.ppf(0.5 + level / 2)
        deviations = (logs - mean) * math.sqrt(seeds / (seeds - 1)) * tails
        picks = rng.integers(seeds, size=(draws, seeds, len(n)))
        drawn = mean + moved + np.take_along_axis(deviations[None], picks, axis=1).mean(axis=1)  # (R, K)
        pairs = drawn @ solve.T  # (R, 2)
        low, high = np.quantile(pairs[:, 1], [0.5 - level / 2, 0.5 + level / 2])
        interval = (float(low), float(high))
    else:
        pairs, interval = np.zeros((0, 2)), None
    residual = float(np.abs(mean - design @ np.array([log_a, b])).max() / math.log(2))
    measured = tuple(float(v) for v in np.exp(mean))
    return PowerLaw(float(np.exp(log_a)), float(b), interval, tuple(float(v) for v in n), residual, measured, level, pairs)


def _moved_by_images(wrong: np.ndarray, rng: np.random.Generator, draws: int, floor: float) -> np.ndarray:
    """(R, K): by how much the log of each size's error moves with other test images."""
    error = wrong.mean(axis=1, keepdims=True)
    shares = (wrong - error) / np.maximum(error, floor) / wrong.shape[1]  # (K, N)
    return rng.standard_normal((draws, wrong.shape[1]), dtype=np.float32) @ shares.T.astype(np.float32)


@dataclass(frozen=True)
class Crossing:
    """Where two fitted lines meet. `at` is None when they do not meet inside the sizes that were measured."""

    at: float | None
    interval: tuple[float, float] | None
    """None also where a fit has one seed: such a meeting is not established."""
    share: float
    """Share of bootstrap draws whose lines meet in the range."""
    span: tuple[float, float]
    seen: bool = True
    """Whether the measured means change order there too; where they do not, the fits bend past the data."""
    reach: float = 1.0
    """So many times the largest size a meeting was looked for."""

    @property
    def is_beyond(self) -> bool:
        """Whether it lies past what was measured."""
        return self.at is not None and self.at > self.span[1]

    def __str__(self) -> str:
        if self.at is None:
            further = f", nor up to {self.reach:g} times that" if self.reach > 1 else ""
            return f"no crossing in range ({readable(self.span[0])} to {readable(self.span[1])}){further}"
        at, *ends = (readable(float(f"{value:.3g}")) for value in (self.at, *(self.interval or ())))  # a fit knows no more digits
        if not self.seen:
            return f"no crossing: the fits meet at {at}, but the measured means do not change order there"
        if not ends:
            return f"the lines meet at {at} (one seed: not established)"
        where = f"{at} ({' to '.join(ends)}; in {percent(self.share)} of the draws)"
        if self.is_beyond:
            factor = self.at / self.span[1]
            sure = "would cross" if self.share >= _SURE else "might cross"
            return f"no crossing in range; carried on by a factor of {factor:.1f} the lines {sure} at {where}, which nothing measured"
        return f"crossing at {where}" if self.share >= _SURE else f"crossing not established, perhaps at {where}"

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("at", "interval", "share", "seen", "span", "reach")} | {"text": str(self)}


def crossing(first: PowerLaw, second: PowerLaw, reach: float = 1.0) -> Crossing:
    """The size at which two fits have the same error, if it lies in the range both were measured in, or up to `reach` times its end."""
    low, high = max(min(first.sizes), min(second.sizes)), min(max(first.sizes), max(second.sizes))
    if low >= high:
        raise UsageError("the two fits share no range of sizes", "measure both at the same sizes")
    end = high * reach
    point = _meet(math.log(first.a), first.b, math.log(second.a), second.b)
    count = min(len(first.draws), len(second.draws))
    inside = [
        meet
        for (log_a, b), (other_log_a, other_b) in zip(first.draws[:count], second.draws[:count], strict=True)
        if low <= (meet := _meet(log_a, b, other_log_a, other_b)) <= end
    ]
    share = len(inside) / count if count else 0.0
    if not low <= point <= end:
        return Crossing(None, None, share, (low, high), reach=reach)
    outer = (first.level + 1) / 2
    around = np.quantile(inside, [1 - outer, outer]) if inside else (point, point)
    interval = (float(around[0]), float(around[1])) if count else None
    return Crossing(point, interval, share, (low, high), point > high or _order_changes(first, second, point), reach)


def _order_changes(first: PowerLaw, second: PowerLaw, point: float) -> bool:
    """Do the measured means change order between the sizes on either side of `point`?"""
    other = dict(zip(second.sizes, second.measured, strict=True))
    gaps = [(size, error - other[size]) for size, error in zip(first.sizes, first.measured, strict=True) if size in other]
    below = [gap for size, gap in gaps if size <= point]
    above = [gap for size, gap in gaps if size > point]
    return not below or not above or below[-1] * above[0] <= 0


def _meet(log_a: float, b: float, other_log_a: float, other_b: float) -> float:
    if b == other_b:
        return math.inf
    exponent = (log_a - other_log_a) / (b - other_b)
    return math.exp(exponent) if abs(exponent) < 700 else math.inf
