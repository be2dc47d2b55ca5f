import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitral.config import TrainConfig
from vitral.train.schedule import ema_decay, lr_factor, shown_patches, snapshot_steps, snapshots_by, token_shares


def curve(total: int, **changes: object) -> list[float]:
    config = TrainConfig(**changes)  # type: ignore[arg-type]
    return [lr_factor(config, step / total, 1 / total) for step in range(total)]


def test_warm_up_then_cosine_is_the_closed_form():
    values = curve(100, schedule="cosine", warmup=0.1, final_lr=0.01)
    for step, value in enumerate(values):
        if step < 10:
            assert value == pytest.approx((step + 1) / 10)
        else:
            assert value == pytest.approx(0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (step - 10) / 90)))


def test_linear_step_and_constant_are_closed_forms():
    assert curve(10, schedule="linear", warmup=0.0) == pytest.approx([1 - step / 10 for step in range(10)])
    assert curve(4, schedule="constant", warmup=0.5) == pytest.approx([0.5, 1.0, 1.0, 1.0])
    values = curve(180, schedule="step", warmup=0.0, milestones=(100 / 180, 150 / 180), decay=0.1)
    assert values == pytest.approx([1.0] * 100 + [0.1] * 50 + [0.01] * 30)


@settings(deadline=None, max_examples=25)
@given(
    schedule=st.sampled_from(["cosine", "linear", "step", "constant"]),
    warmup=st.floats(0, 0.9),
    final=st.floats(0, 0.9),
    total=st.integers(1, 300),
)
def test_a_rate_is_always_a_share_of_the_peak_and_falls_after_the_warm_up(schedule: str, warmup: float, final: float, total: int):
    values = curve(total, schedule=schedule, warmup=warmup, final_lr=final)
    assert all(0 < value <= 1 + 1e-12 for value in values)
    after = [value for step, value in enumerate(values) if step / total >= warmup]
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(after))


def test_patches_come_back_at_the_share_of_the_run_that_was_asked_for():
    config = TrainConfig(token_drop=0.5, token_drop_until=0.5)
    seen = [shown_patches(config, step / 1000) for step in range(1000)]
    assert seen[:500] == [0.5] * 500 and seen[500:] == [None] * 500
    assert {keep: seen.count(keep) / 1000 for keep in seen} == token_shares(config)
    assert token_shares(TrainConfig()) == {None: 1.0} == token_shares(TrainConfig(token_drop=0.5, token_drop_until=0.0))


def test_snapshots_are_log_spaced_from_the_start_to_the_end():
    steps = sorted(snapshot_steps(6, 1000))
    assert steps[0] == 0 and steps[-1] == 1000 and len(steps) == 6
    ratios = [b / a for a, b in itertools.pairwise(steps[1:])]
    assert max(ratios) / min(ratios) < 1.3
    assert snapshot_steps(0, 1000) == set() and snapshot_steps(1, 7) == {7}
    assert snapshot_steps(2, 1000) == {0, 1000} and snapshot_steps(3, 1000) == {0, 1, 1000}


@pytest.mark.parametrize("total", [1, 7, 640, 1_000_000])
def test_snapshots_by_a_step_are_the_planned_ones(total: int):
    planned = snapshot_steps(8, total)
    seen = {0, *planned, *(step - 1 for step in planned if step)}
    for step in sorted(seen):
        assert snapshots_by(8, step, step / total) == sum(each <= step for each in planned)
    assert snapshots_by(1, 0, 0.0) == 0 and snapshots_by(1, total, 1.0) == 1


def test_a_clock_that_ends_a_run_spaces_snapshots_by_its_pace():
    """Steps of a 60th of the time, half as quick from the middle on: snapshots still fall from the first step to the last."""
    seconds, step, kept = 0.0, 0, [0]
    written = snapshots_by(8, 0, 0.0)
    while seconds < 60:
        step += 1
        seconds += 1 if seconds < 30 else 2
        if (now := snapshots_by(8, step, min(1.0, seconds / 60))) > written:
            written = now
            kept.append(step)
    assert kept[:3] == [0, 1, 2] and kept[-1] == step == 45 and len(kept) == 8


def test_the_average_starts_young():
    assert ema_decay(0.999, 0) == pytest.approx(0.1)
    assert ema_decay(0.999, 90) == pytest.approx(91 / 100)
    assert ema_decay(0.9, 10**6) == 0.9
