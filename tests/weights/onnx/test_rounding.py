"""Weights in 8 bits: exact where they can be, and better for inputs that are known."""

from __future__ import annotations

import numpy as np
import pytest

from vitral.weights.onnx.rounding import Inputs, gptq_round, round_weights, smoothquant_scales

DRAW = np.random.default_rng(0)


@pytest.mark.parametrize("axis", [0, -1])
def test_every_output_channel_has_a_scale_and_the_error_is_half_a_step(axis):
    weight = DRAW.normal(size=(24, 7)).astype(np.float32) * np.logspace(-3, 3, 7 if axis else 24).reshape((1, -1) if axis else (-1, 1))
    rounded, scale = round_weights(weight, axis)
    assert rounded.dtype == np.int8 and scale.dtype == np.float32 and len(scale) == weight.shape[axis]
    steps = scale if axis else scale[:, None]
    assert (np.abs(rounded * steps - weight) <= 0.501 * steps).all() and np.abs(rounded).max() == 127


def test_zeros_stay_zeros():
    rounded, scale = round_weights(np.zeros((4, 3), np.float32))
    assert not rounded.any() and (scale > 0).all()


def test_what_one_row_loses_the_others_make_good():
    mixed = DRAW.normal(size=(400, 16)) @ DRAW.normal(size=(16, 32)) + 0.05 * DRAW.normal(size=(400, 32))  # inputs that go together
    weight = DRAW.normal(size=(32, 8))
    inputs = Inputs(mixed.T @ mixed / len(mixed), np.abs(mixed).max(axis=0))
    plain, known = ((mixed @ (rounded * scale - weight)).std() for rounded, scale in (round_weights(weight), gptq_round(weight, inputs)))
    assert known < 0.7 * plain


def test_of_inputs_that_do_not_go_together_both_roundings_are_the_same():
    weight = DRAW.normal(size=(16, 8))
    (plain, _), (known, _) = round_weights(weight), gptq_round(weight, Inputs(np.eye(16), np.ones(16)))
    assert (plain == known).all()


def test_large_inputs_become_smaller_and_the_product_stays():
    inputs = DRAW.normal(size=(50, 12)) * np.where(np.arange(12) == 3, 40, 1)
    weight = DRAW.normal(size=(12, 5))
    factors = smoothquant_scales([weight], Inputs(inputs.T @ inputs / 50, np.abs(inputs).max(axis=0)))
    even = inputs / factors
    assert np.abs(even).max() / np.abs(even).mean() < 0.5 * np.abs(inputs).max() / np.abs(inputs).mean()
    assert even @ (weight * factors[:, None]) == pytest.approx(inputs @ weight)
