"""Taking turns: who is timed how often, and what a ratio is."""

from __future__ import annotations

import pytest
import torch

from vitral.study import turns

CPU = torch.device("cpu")


def test_all_have_as_many_rounds_in_turn_and_short_ones_several_goes_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], []

    def takes(name: str, seconds: float) -> turns.Action:
        def action() -> None:
            calls.append(name)
            clock[0] += seconds

        return action

    monkeypatch.setattr(turns.time, "perf_counter", lambda: clock[0])
    times = turns.in_turn({"long": takes("long", 1.0), "short": takes("short", turns.TURN / 3.5)}, CPU, 3)
    assert calls == ["long", "short", *(["long"] + ["short"] * 4) * 3], "one go each to find out, then the rounds"
    assert times["long"] == pytest.approx([1.0] * 3) and times["short"] == pytest.approx([turns.TURN / 3.5] * 3)


def test_a_ratio_is_taken_within_its_round() -> None:
    middle, (low, high) = turns.ratio_of([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])
    assert (middle, low, high) == (2.0, 2.0, 2.0), "a machine that became slower, twice"
    middle, (low, high) = turns.ratio_of([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    assert middle == 2.0 and low == pytest.approx(1.2) and high == pytest.approx(2.8)
