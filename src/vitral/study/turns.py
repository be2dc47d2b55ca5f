"""Timing several things beside each other: all take turns, round after round, so that what slows the machine slows all of them."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from vitral.base.device import wait

Action = Callable[[], object]
TURN = 0.05
"""Seconds that a turn lasts at least: what is over sooner is done several times in it."""


def in_turn(actions: Mapping[str, Action], place: torch.device, rounds: int) -> dict[str, list[float]]:
    """Seconds of each action in each round; a round before them finds out how often a turn repeats it."""
    repeats = {name: max(1, math.ceil(TURN / seconds_of(action, place))) for name, action in actions.items()}
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            times[name].append(seconds_of(action, place, repeats[name]))
    return times


def seconds_of(action: Action, place: torch.device, repeats: int = 1) -> float:
    """Of one out of several in a row, each waited for."""
    wait(place)
    began = time.perf_counter()
    for _ in range(repeats):
        action()
        wait(place)
    return (time.perf_counter() - began) / repeats


def ratio_of(times: Sequence[float], others: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Median and 10 to 90 % of the ratios within a round."""
    low, middle, high = np.quantile(np.divide(times, others), (0.1, 0.5, 0.9))
    return float(middle), (float(low), float(high))


def tidy(place: torch.device) -> None:
    """Between measurements: models that nothing holds any more, and what the compiler keeps of them."""
    torch.compiler.reset()
    gc.collect()
    if place.type == "cuda":
        torch.cuda.empty_cache()
