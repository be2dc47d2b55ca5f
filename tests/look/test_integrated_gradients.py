"""Integrated gradients: completeness."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

import vitral
from vitral import look
from vitral.look.integrated_gradients import _path_weights, _share_at, attribute


def test_completeness(any_model, images) -> None:
    batch = images(any_model)
    tape = vitral.watch(any_model, batch)
    found = attribute(tape, 1, 2, tolerance=1e-4)
    blank = any_model(torch.zeros_like(batch[1:2]))[0, 2].detach()
    assert found.change == pytest.approx(float(tape.logits[1, 2] - blank), abs=1e-9)
    assert found.gap <= 1e-4
    heat = look.integrated_gradients(tape, 1, 2, tolerance=1e-4)
    assert heat.grid.shape == any_model.config.grid
    assert heat.grid.sum() == pytest.approx(found.total, abs=1e-9)
    assert heat.signed and "gap" in heat.note
    pixels = look.integrated_gradients(tape, 1, 2, tolerance=1e-4, per="pixel")
    assert pixels.grid.shape == any_model.config.image_size
    assert pixels.grid.sum() == pytest.approx(found.total, abs=1e-9)


def test_patches_hold_the_sum_of_their_pixels(make, images) -> None:
    model = make(image_size=(16, 24), patch_size=(4, 8))
    tape = vitral.watch(model, images(model))
    pixels = look.integrated_gradients(tape, per="pixel", steps=4, tolerance=9).grid
    patches = look.integrated_gradients(tape, steps=4, tolerance=9).grid
    np.testing.assert_allclose(patches[1, 2], pixels[4:8, 16:24].sum(), atol=1e-12)


def test_the_blank_picture_owes_nothing(make, images) -> None:
    model = make()
    heat = look.integrated_gradients(vitral.watch(model, torch.zeros_like(images(model))), steps=2, tolerance=9)
    assert not heat.grid.any()


def test_baselines_and_training_mode(make, images) -> None:
    model = make(dropout=0.5).train()
    tape = vitral.watch(model, images(model))
    black, white = (look.integrated_gradients(tape, baseline=name, steps=8).grid for name in ("black", "white"))
    assert np.abs(black - white).max() > 1e-3
    np.testing.assert_array_equal(black, look.integrated_gradients(tape, baseline="black", steps=8).grid)  # no dropout on the way
    assert model.training
    with pytest.raises(vitral.VitralError, match="'blur'"):
        look.integrated_gradients(tape, baseline="blur")


@pytest.mark.parametrize("steps", [2, 3, 8, 9, 32])
def test_the_rule_is_exact_for_polynomials_of_the_path(steps: int) -> None:
    """Of a, up to degree p with 2 p + 1 ≤ steps: points are those of t, and a = t²."""
    for degree in range((steps - 1) // 2 + 1):
        found = sum(weight * _share_at(float(place)) ** degree for place, weight in _path_weights(steps).items())
        assert found == pytest.approx(1 / (degree + 1), abs=1e-12)


def test_twice_the_steps_keep_those_already_taken(make, images, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(_path_weights(8)) < set(_path_weights(16))
    tape = vitral.watch(model := make(), images(model))
    seen: list[int] = []
    module = importlib.import_module("vitral.look.integrated_gradients")  # look.integrated_gradients is the function
    run = module.run
    monkeypatch.setattr(module, "run", lambda tape, images: (seen.append(len(images)), run(tape, images))[1])
    found = attribute(tape, 0, 1, steps=4, tolerance=1e-4)
    assert found.steps > 4 and sum(seen) == found.steps + 1, "every place once, and the blank picture"
    torch.testing.assert_close(found.values, attribute(tape, 0, 1, steps=found.steps, tolerance=9).values)
