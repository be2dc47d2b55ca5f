"""Occlusion against covering by hand."""

from __future__ import annotations

import pytest
import torch

import vitral
from vitral import look


@torch.no_grad()
def test_covers_what_it_says(make, images) -> None:
    model = make(image_size=(16, 24), patch_size=(4, 8))
    batch = images(model)
    heat = look.occlusion(vitral.watch(model, batch), 1, 3, size=1)
    assert heat.grid.shape == (4, 3)
    covered = batch[1:2].clone()
    covered[:, :, 8:12, 16:24] = 0
    fall = model(batch[1:2]).softmax(1)[0, 3] - model(covered).softmax(1)[0, 3]
    assert heat.grid[2, 2] == pytest.approx(float(fall), abs=1e-12)
    wide = look.occlusion(vitral.watch(model, batch), 1, 3, size=3)
    covered = batch[1:2].clone()
    covered[:, :, 0:8, 0:16] = 0  # around the corner patch only the inner part exists
    fall = model(batch[1:2]).softmax(1)[0, 3] - model(covered).softmax(1)[0, 3]
    assert wide.grid[0, 0] == pytest.approx(float(fall), abs=1e-12)


def test_rivals_and_regression(make, images) -> None:
    cnn = vitral.create("cnn", image_size=16)
    assert look.occlusion(vitral.watch(cnn, torch.randn(1, 3, 16, 16))).grid.shape == (14, 14)
    model = make(classes=1)
    heat = look.occlusion(vitral.watch(model, images(model)))
    assert heat.unit == "fall of the output" and heat.grid.any()


def test_bad_size(make, images) -> None:
    model = make()
    with pytest.raises(vitral.VitralError, match="size = 9 patches"):
        look.occlusion(vitral.watch(model, images(model)), size=9)
