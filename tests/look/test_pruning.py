"""Heads switched off one after another, against the same cuts made by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral import look
from vitral.look.switch_off import Off, _least_first, edits_for, prune_heads


def test_the_least_needed_goes_first() -> None:
    assert _least_first(np.array([[-0.5, 0.1], [0.0, -0.2]])) == [(0, 1), (1, 0), (1, 1), (0, 0)]


def test_every_point_is_the_model_without_so_many_heads(make, images) -> None:
    model = make()
    batch = images(model, 4)
    tape = vitral.watch(model, batch)
    ablation = look.ablate(tape, 1, 2)
    labels = [0, 1, 2, 0]
    found = prune_heads(tape, ablation, 1, images=batch, labels=labels)
    total = model.config.depth * model.config.heads
    assert sorted(found.order) == [(block, head) for block in range(model.config.depth) for head in range(model.config.heads)]
    assert found.counts.tolist() == list(range(total + 1))
    assert found.share is not None
    for count in (0, 3, total):
        logits = vitral.watch(model, batch, edits=edits_for(Off(heads=found.order[:count])) or None).logits
        assert found.confidence[count] == pytest.approx(float(logits.softmax(1)[1, 2]), abs=1e-6)
        assert found.share[count] == pytest.approx(float((logits.argmax(1) == torch.tensor(labels)).float().mean()))
    assert found.confidence[0] == pytest.approx(found.random[0], abs=1e-6), "with nothing off no order matters"
    assert found.confidence[-1] == pytest.approx(found.random[-1], abs=1e-6), "with everything off neither"
    assert np.abs(found.confidence - found.random).max() > 0


def test_half_is_the_last_point_before_the_fall() -> None:
    from vitral.look.switch_off import Pruning

    values = np.array([0.8, 0.7, 0.5, 0.3, 0.6])
    assert Pruning((), np.arange(5) * 4, values, values, None).half == 8
    assert Pruning((), np.arange(5), np.full(5, 0.9), values, None).half == 4


def test_few_points_of_many_heads(make, images) -> None:
    model = make()
    tape = vitral.watch(model, images(model, 1))
    found = prune_heads(tape, look.ablate(tape), points=4)
    assert found.counts.tolist() == [0, 3, 6, 9] and found.share is None
