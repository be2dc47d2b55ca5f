"""A few hundred of the cases of `make fuzz`, and all of them under the marker `fuzz`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from fuzz.confined import confined, confined_each
from fuzz.run import fuzz
from vitral.base.errors import DataError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bounds of a process are set the Linux way")


def _raise(error: BaseException) -> None:
    raise error


def _hang() -> None:
    while True:
        pass


def test_endings_are_told_apart() -> None:
    """The measure itself: each kind of ending is seen, and what comes after a bad one still runs."""
    works = [
        lambda: 1,
        lambda: _raise(DataError("no", "do")),
        lambda: _raise(KeyError("x")),
        _hang,
        lambda: len(bytearray(b"x") * (600 * 2**20)),
        lambda: sys.exit(3),
        lambda: 2,
    ]
    kinds = ["fine", "refused", "raw", "timeout", "fine", "raw", "fine"]
    assert [ending.kind for ending in confined_each(works, seconds=8)] == kinds
    assert [confined(work).kind for work in works if work is not _hang] == [kind for kind in kinds if kind != "timeout"]
    assert confined(works[4], memory=2**28).kind == "memory"
    assert next(confined_each(works[4:5], memory=2**28)).kind == "memory"


def test_what_was_inherited_is_not_taken_off() -> None:
    """Garbage of the process before, which a collection in the child would give back while the child's own memory grows."""

    class Left:
        def __init__(self) -> None:
            self.itself, self.block = self, bytearray(b"x") * (400 * 2**20)

    def work() -> int:
        gc.collect()
        return len(bytearray(b"x") * (600 * 2**20))

    gc.disable()
    try:
        Left()
        endings = [confined(work, memory=2**28), next(confined_each([work], memory=2**28))]
    finally:
        gc.enable()
        gc.collect()
    assert [ending.kind for ending in endings] == ["memory", "memory"], endings


def test_damaged_inputs_end_in_one_line(tmp_path: Path) -> None:
    counts, bad = fuzz(tmp_path, cases=300, seed=2024)
    assert not bad
    assert sum(sum(count.values()) for count in counts.values()) >= 300
    assert all(count["refused"] for kind, count in counts.items() if kind != "web requests")


@pytest.mark.fuzz
def test_thousands_of_them(tmp_path: Path) -> None:
    assert fuzz(tmp_path, cases=20_000, seed=1)[1] == []
