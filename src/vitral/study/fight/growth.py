"""What the studies of growth share (with data, compute, pre-training): power laws over cells, tests and tables at each size, remarks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from vitral.data.loader import even_batches
from vitral.study.fight.conduct import Conducted
from vitral.study.fight.experiment import Experiment
from vitral.study.fight.statistics import LEVEL, Crossing, Pair, PowerLaw, compare_pairs, crossing, p_text, power_law_fit
from vitral.study.fight.table import Outcome, Table, row

K = TypeVar("K")
Right = Callable[[Sequence[Outcome]], np.ndarray]
"""Cells → (cells, images): which test images they got right."""
BENT = 0.3
"""Largest |log2| between points and line up to which we call it a power law: a quarter off."""
SMALLER = 0.9
"""Of the whole set's batch, below which a size's own batch is said to be smaller."""


def fit_cells(cells: Sequence[Outcome], axis: str, right: Right) -> PowerLaw | None:
    """A power law over the values of an `axis` (`size`, say) that have every seed; None with fewer than two of them."""
    seeds = sorted({cell.seed for cell in cells})
    by_size: dict[float, dict[int, Outcome]] = {}
    for cell in cells:
        by_size.setdefault(getattr(cell, axis), {})[cell.seed] = cell
    whole = sorted(at for at, own in by_size.items() if len(own) == len(seeds))
    if len(whole) < 2:
        return None
    errors = np.array([[1 - by_size[at][seed].accuracy for at in whole] for seed in seeds])
    wrong = np.stack([1 - right(list(by_size[at].values())).mean(axis=0) for at in whole])
    return power_law_fit(whole, errors, wrong, floor=1e-4)


def power_laws(
    models: Mapping[str, Sequence[Outcome]], axis: str, right: Right, reach: float = 1.0
) -> tuple[dict[str, PowerLaw], dict[str, Crossing]]:
    """The power law of each model, and where each two of them cross."""
    fits = {name: fit for name, cells in models.items() if (fit := fit_cells(cells, axis, right)) is not None}
    return fits, {f"{a} and {b}": crossing(fits[a], fits[b], reach) for a, b in combinations(fits, 2)}


def pairs_at(done: Conducted, groups: Mapping[K, Mapping[str, np.ndarray]]) -> dict[K, list[Pair]]:
    """Tests between all models of each group, counted together; those with one seed are left out."""
    claimed = done.study.claim == "significance"
    tested = {group: {name: seeds for name, seeds in correct.items() if claimed and len(seeds) > 1} for group, correct in groups.items()}
    return compare_pairs(tested)


def step_remarks(done: Conducted) -> list[str]:
    """A small set is divided into even batches, below the whole set's: at the same samples that is more steps than the whole set takes."""
    study = done.study
    batch = study.contenders[0].run.train.batch_size
    whole = even_batches(study.sizes[-1], batch)[1]
    below = [size for size in study.sizes[:-1] if even_batches(size, batch)[1] < SMALLER * whole]
    shown = (study.sizes[0], *below, study.sizes[-1])
    taken = {size: {done.steps(outcome) for outcome in done.outcomes if outcome.size == size} for size in shown}
    if not all(taken.values()):
        return []

    def steps(size: int) -> str:
        few, most = min(taken[size]), max(taken[size])
        return f"{few:,}" if few == most else f"{few:,} to {most:,}"

    if study.budget.kind == "epochs":
        few, all_ = study.sizes[0], study.sizes[-1]
        return [
            f"The training grows with the data, {steps(few)} optimizer steps with {few:,} pictures and {steps(all_)} with {all_:,}: "
            "what is shown is the effect of both together."
        ]
    if not below:
        return []
    listed = ", ".join(f"{steps(size)} with {size:,} pictures" for size in below)
    return [
        f"Sizes that are no whole number of batches of {batch:,} are trained in smaller, even ones, so they took other numbers of "
        f"optimizer steps: {listed}, against {steps(study.sizes[-1])} with {study.sizes[-1]:,}."
    ]


@dataclass(frozen=True)
class GapChange:
    """How the distance between two models changes from the smallest size to the largest."""

    a: str
    """The one that is ahead at the smallest."""
    b: str
    lead: tuple[float, float]
    """Accuracy of a minus accuracy of b, at the smallest and at the largest size."""
    gained: float
    """So much more b gained than a."""
    interval: tuple[float, float]
    p: float
    adjusted: float
    at_most: bool = False
    """The bootstrap ends here, as for a `Pair`."""

    @property
    def is_significant(self) -> bool:
        return self.adjusted < LEVEL

    def __str__(self) -> str:
        first, last = (f"{100 * lead:+.1f}" for lead in self.lead)
        low, high = (f"{100 * end:+.1f}" for end in self.interval)
        turned = "the order turns" if self.lead[1] < 0 else "the gap closes"
        how = (turned if self.gained > 0 else "the gap widens") if self.is_significant else "not told apart from no change"
        moved = f"{self.b} gains {100 * self.gained:+.1f} points on it ({low} to {high}, {p_text(self.adjusted, self.at_most)})"
        return f"{self.a} leads {self.b} by {first} points at first and {last} at last: {moved}, {how}"

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "text": str(self), "test": "paired bootstrap of the differences, Holm"}


@dataclass(frozen=True)
class Gap:
    """Two models at the smallest and at the largest size, as the name of a group of tests."""

    a: str
    b: str
    lead: tuple[float, float]
    way: str = ""
    """How the models were used, where there are several ways."""


def gaps(first: Mapping[str, np.ndarray], last: Mapping[str, np.ndarray], way: str = "") -> dict[Gap, dict[str, np.ndarray]]:
    """For each two models what they gained from the `first` size to the `last`: contender → booleans (S, N).

    The seeds and the test images are the same at both sizes, so each model's gain is measured image by image, and these gains are
    compared as two models are: groups for `pairs_at`, to be counted with the other tests of the page.
    """
    names = [name for name in first if name in last and len(first[name]) == len(last[name]) > 1]
    groups = {}
    for one, two in combinations(names, 2):
        a, b = (one, two) if first[one].mean() >= first[two].mean() else (two, one)
        before, after = (float(correct[a].mean() - correct[b].mean()) for correct in (first, last))
        groups[Gap(a, b, (before, after), way)] = {name: last[name].astype(float) - first[name].astype(float) for name in (b, a)}
    return groups


def gap_changes(tested: Mapping[Any, Sequence[Pair]], way: str = "") -> list[GapChange]:
    """Whether the distance of two models is another one at the last size, out of tests that hold `gaps`."""
    return [
        GapChange(gap.a, gap.b, gap.lead, test.difference, test.interval, test.p, test.adjusted, test.at_most)
        for gap, tests in tested.items()
        if isinstance(gap, Gap) and gap.way == way
        for test in tests
    ]


def bent_remarks(fits: Mapping[str, PowerLaw]) -> list[str]:
    bent = [name for name, fit in fits.items() if fit.residual > BENT]
    if not bent:
        return []
    worst = 2 ** max(fits[name].residual for name in bent)
    return [f"The points of {', '.join(bent)} do not lie on a power law (off by up to {worst:.1f} times): take their crossings with care."]


def thin_remarks(fits: Mapping[str, PowerLaw]) -> list[str]:
    thin = [name for name, fit in fits.items() if len(fit.sizes) == 2]
    return [f"The line of {', '.join(thin)} has two points, which every line fits: that it is a power law is not shown."] if thin else []


def difference_text(pairs: Sequence[Pair]) -> str:
    """`cnn beats vit by 3.1 points; not told apart: …`; empty without pairs."""
    apart = [f"{pair.ranked[0]} beats {pair.ranked[1]} by {abs(pair.difference) * 100:.1f} points" for pair in pairs if pair.different]
    rest = [f"{pair.a} and {pair.b}" for pair in pairs if not pair.different]
    return "; ".join(([", ".join(apart)] if apart else []) + ([f"not told apart: {', '.join(rest)}"] if rest else []))


def untested(study: Experiment) -> str:
    if len(study.contenders) == 1:
        return "one model"
    return "one seed" if len(study.seeds) == 1 else "fewer than two models have two finished seeds"


def tables_at(done: Conducted, axis: str, titles: dict[Any, str]) -> list[Table]:
    """A table for each size, or each share of the budget; what the models are stands once, under the last one."""
    finished = {contender.name: done.of(contender.name) for contender in done.study.contenders if done.of(contender.name)}
    tables = [
        Table(
            tuple(
                row(own, done.interval(own) if done.study.claim == "significance" else None)
                for cells in finished.values()
                if (own := [cell for cell in cells if getattr(cell, axis) == at])
            ),
            title,
        )
        for at, title in titles.items()
    ]
    notes = tuple(f"{contender.name}: {contender.note}" for contender in done.study.contenders if contender.name in finished)
    return [*tables[:-1], dataclasses.replace(tables[-1], notes=notes)]
