"""Times as a user feels them: from the command to its result, and what each part of it took."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Iterator
from typing import Any

_IMPORTED = time.time()


def process_start() -> float:
    """When this process began, in seconds since 1970: Python's own start and every import come after it."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])  # field 22: since the machine started
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED  # no Linux: without the time that Python itself took to start


class Times:
    """What a run spends its time on. `taking` measures a part; parts of one name add up."""

    def __init__(self, began: float | None = None) -> None:
        """`began`: when the command was given; None: now."""
        self.began = time.time() if began is None else began
        self.parts: dict[str, float] = {"start": max(0.0, time.time() - self.began)}
        self.facts: dict[str, Any] = {}

    def until_now(self, part: str) -> None:
        """`part` is all that no other part has taken so far."""
        self.parts[part] = max(0.0, time.time() - self.began - sum(self.parts.values()))

    @contextlib.contextmanager
    def taking(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.parts[part] = self.parts.get(part, 0.0) + time.perf_counter() - began

    def to_dict(self) -> dict[str, Any]:
        """Seconds: `start` until the work began (Python, imports), each part, `total` from the command until now; what is in no part is
        saving, drawing and writing."""
        when = datetime.datetime.fromtimestamp(self.began, datetime.UTC).isoformat(timespec="seconds")
        parts = {name: round(seconds, 3) for name, seconds in self.parts.items()}
        return {"began": when, **parts, "total": round(time.time() - self.began, 3), **self.facts}
