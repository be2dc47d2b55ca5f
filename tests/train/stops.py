"""What happens to a training from outside, after a step: a signal, a fault, a clock of its own. Nothing private of the loop is touched."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vitral.base.errors import Stopped
from vitral.train.steps import Stepper


@contextmanager
def after_steps(act: Callable[[int], object]) -> Iterator[None]:
    """Inside, `act` is called after each step of this process, with how many there were."""
    step, taken = Stepper.step, 0

    def stepping(self: Stepper, *given: Any) -> Any:
        nonlocal taken
        outcome = step(self, *given)
        taken += 1
        act(taken)
        return outcome

    Stepper.step = stepping  # type: ignore[method-assign]
    try:
        yield
    finally:
        Stepper.step = step  # type: ignore[method-assign]


@contextmanager
def signalled_after(step: int, by: signal.Signals = signal.SIGTERM) -> Iterator[None]:
    """Inside, this process gets a signal at the end of its `step`-th step."""
    with after_steps(lambda taken: os.kill(os.getpid(), by) if taken == step else None):
        yield


@contextmanager
def stopped_after(step: int) -> Iterator[None]:
    """The same, and the training must end as stopped: anything else is a failure."""
    try:
        with signalled_after(step):
            yield
    except Stopped as stopped:
        assert "by SIGTERM at step " in str(stopped)
    else:
        raise AssertionError("the training was not stopped")


@contextmanager
def seconds_per_step(seconds: float = 1.0) -> Iterator[None]:
    """Inside, only steps take time: `seconds` each. (Every look at the clock takes a microsecond, so that no speed is infinite.)"""
    clock, now = time.perf_counter, 0.0

    def looked() -> float:
        nonlocal now
        now += 1e-6
        return now

    def stepped(_: int) -> None:
        nonlocal now
        now += seconds

    time.perf_counter = looked
    try:
        with after_steps(stepped):
            yield
    finally:
        time.perf_counter = clock
