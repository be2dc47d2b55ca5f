"""What an audit's numbers mean for one method, in words: may this map be used to explain this model?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vitral.study.fight.statistics import mean_interval

TESTS = {
    "planted patch": "chance that a patch which decides the class outranks another (0.5: knows nothing of it)",
    "masks": "chance that a patch inside the mask outranks one outside (0.5: knows nothing of it)",
    "four in one": "share of the weight in the right one of four pictures (0.25: chance)",
    "removal": "insertion − deletion, mean over the ways of removing (0: no better than any order)",
    "removal: mean": "… removed patches in the picture's mean colour",
    "removal: blur": "… blurred",
    "removal: other": "… replaced by another picture's",
    "removal: dropped": "… their tokens dropped",
    "salience order": "SaCo, −1 to 1: does more weight cost more when it is removed?",
    "permuted weights": "rank correlation with the map of a model whose weights were shuffled (0: depends on them)",
    "permuted labels": "rank correlation with the map of a head fitted to shuffled answers",
    "small changes": "rank correlation with the map of the same picture, changed a little (1: stable)",
    "classes": "1 − rank correlation between the maps of two classes (0: the same map for every class)",
}
"""What each test measures, in the order of a table."""

_RANGES = {"planted patch": (0.0, 1.0), "masks": (0.0, 1.0), "four in one": (0.0, 1.0), "classes": (0.0, 2.0)}
"""What a test's numbers can be; all others: −1 to 1."""
_BLIND = 0.5
"""Rank correlation with a permuted model's maps from which on a map is said not to depend on the weights."""
SAME = 0.02
MARGIN = 0.01
"""Beyond chance, from which a share of the weight counts as found: an interval of 0.251 to 0.253 is certain, and says nothing."""
_UNSTABLE = 0.4
USE, CARE, AVOID = "use", "with care", "do not use"

_Summary = tuple[float, float, float, int]
"""Mean, low and high end of the interval, number of pictures."""


@dataclass(frozen=True)
class Row:
    method: str
    verdict: str
    """use, with care, do not use; of a reference: reference."""
    reason: str
    tests: dict[str, _Summary]
    beaten: dict[str, tuple[float, float, float]]
    """By how much it is more faithful than each reference."""

    @property
    def text(self) -> str:
        return f"{self.method}: {self.verdict}: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        tests = {name: {"mean": mean, "interval": [low, high], "n": n} for name, (mean, low, high, n) in self.tests.items()}
        over = {name: {"difference": mean, "interval": [low, high]} for name, (mean, low, high) in self.beaten.items()}
        return {"method": self.method, "verdict": self.verdict, "reason": self.reason, "tests": tests, "more_faithful_than": over}


def summary(values: np.ndarray, test: str) -> _Summary | None:
    """Mean, both ends of its 95 % interval over pictures, and their number; None: fewer than two were measured."""
    measured = values[~np.isnan(values)]
    if len(measured) < 2:
        return None
    stats = mean_interval(measured)
    low, high = np.clip([stats.low, stats.high], *_RANGES.get(test, (-1.0, 1.0))).tolist()
    return stats.mean, low, high, stats.n


def paired(values: np.ndarray, reference: np.ndarray) -> tuple[float, float, float]:
    """By how much a row is more faithful than a reference on the same pictures, with the interval."""
    stats = mean_interval(values - reference)
    return stats.mean, stats.low, stats.high


def verdict_of(name: str, tests: dict[str, _Summary], beaten: dict[str, tuple[float, float, float]], reference: bool = False) -> Row:
    """The verdict with its reasons, the gravest first."""
    if reference:
        return Row(name, "reference", REFERENCE[name], tests, beaten)
    grave, mild = faults(tests, beaten), _cautions(tests, beaten)
    if grave:
        return Row(name, AVOID, "; ".join(grave), tests, beaten)
    good = [f"more faithful than noise ({_number(tests['removal'])})"] if "removal" in tests else []
    good += [f"finds a planted patch ({_number(tests['planted patch'])})"] if "planted patch" in tests else []
    good += (
        [f"depends on the weights (correlation {_number(tests['permuted weights'])} without them)"] if "permuted weights" in tests else []
    )
    if mild:
        return Row(name, CARE, f"{'; '.join(mild)}; but {', '.join(good)}", tests, beaten)
    return Row(name, USE, ", ".join(good), tests, beaten)


def faults(tests: dict[str, _Summary], beaten: dict[str, tuple[float, float, float]]) -> list[str]:
    """Why a map explains nothing here."""
    out = []
    if (stats := tests.get("permuted weights")) and stats[1] > _BLIND:
        text = f"rank correlation {_number(stats)} with the map of a model whose weights were shuffled"
        out.append(f"it does not depend on the weights here ({text}): do not use it to explain this model")
    if (stats := tests.get("removal")) and stats[1] <= 0:
        out.append(f"it is not shown to be more faithful than noise ({_number(stats)}, interval {_ends(stats)})")
    else:
        lost = [_REFERENCE_NAMES[name] for name, (_, _, high) in beaten.items() if high < 0]
        out += [f"it is less faithful than {' and '.join(lost)}"] if lost else []
    if (stats := tests.get("planted patch")) and stats[1] <= 0.5:
        out.append(f"it {_finding(stats, 0.5)} a patch that decides the class ({_number(stats)}, interval {_ends(stats)}; 0.5 is chance)")
    return out


def _cautions(tests: dict[str, _Summary], beaten: dict[str, tuple[float, float, float]]) -> list[str]:
    """What a reader of the map must know."""
    out = []
    ways = {name.partition(": ")[2]: stats for name, stats in tests.items() if name.startswith("removal: ")}
    if failed := [way for way, stats in ways.items() if stats[1] <= 0]:
        out.append(f"whether it is faithful depends on how patches are removed (not with: {', '.join(failed)})")
    if unproved := [_REFERENCE_NAMES[name] for name, (_, low, high) in beaten.items() if name != "random" and low <= 0 <= high]:
        out.append(f"it is not shown to be more faithful than {' or '.join(unproved)}")
    if (stats := tests.get("permuted weights")) and stats[0] > _BLIND:
        out.append(f"it hardly depends on the weights (correlation {_number(stats)})")
    if (stats := tests.get("classes")) and stats[2] <= SAME:
        out.append("it is the same map for every class: it shows where the model looks, not what speaks for a class")
    elif (stats := tests.get("four in one")) and stats[1] <= 0.25 + MARGIN:
        text = f"{_number(stats)}, interval {_ends(stats)}; 0.25 is chance"
        out.append(f"of four pictures it {_finding(stats, 0.25)} the one whose class is asked for ({text})")
    if (stats := tests.get("salience order")) and stats[2] < 0:
        out.append(f"its amounts mean the opposite of what they say (salience order {_number(stats)})")
    if (stats := tests.get("small changes")) and stats[0] < _UNSTABLE:
        out.append(f"small changes of the picture change it much (correlation {_number(stats)})")
    return out


_REFERENCE_NAMES = {"random": "noise", "edges": "an edge detector", "centre": "a blob in the middle"}
REFERENCE = {
    "random": "noise, to be beaten",
    "edges": "Sobel's edges: knows the picture, not the model",
    "centre": "the nearer to the middle the more: knows neither",
}


def _finding(stats: _Summary, chance: float) -> str:
    """Few pictures can leave open what a mean above chance suggests: that is no finding against the map."""
    return "does not find" if stats[0] <= chance or stats[2] <= chance + MARGIN else "is not shown to find"


def _number(stats: _Summary) -> str:
    return f"{stats[0]:.2f}".replace("-", "−")


def _ends(stats: _Summary) -> str:
    return f"{stats[1]:.2f} to {stats[2]:.2f}".replace("-", "−")
