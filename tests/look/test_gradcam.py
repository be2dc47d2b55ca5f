"""Grad-CAM on tokens and on feature maps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral import look


def test_cnn_by_hand() -> None:
    torch.manual_seed(0)
    model = vitral.create("cnn", image_size=16).eval()
    image = torch.randn(2, 3, 16, 16)
    maps = image
    for stage in model.stages[:2]:
        maps = stage(maps)
    maps = maps.detach().requires_grad_()
    logits = model.head(model.hidden(model.stages[2](maps)))
    (slopes,) = torch.autograd.grad(logits[1, 4], maps)
    cam = torch.zeros(4, 4)
    for channel in range(maps.shape[1]):
        cam += slopes[1, channel].mean() * maps[1, channel].detach()
    heat = look.gradcam(vitral.watch(model, image), 1, 4, block=1)
    np.testing.assert_allclose(heat.grid, cam.clamp(min=0).numpy(), atol=1e-5)
    assert (heat.block, heat.target, heat.grid.shape) == (1, 4, (4, 4))


def test_vit_reads_the_last_block_whose_patches_matter(make, images) -> None:
    model = make()
    tape = vitral.watch(model, images(model), keep=["blocks.1.output"], gradients=True)
    heat = look.gradcam(tape, 1, 2)
    slopes = tape.gradient("blocks.1.output", 2, 1)[1, 1:]  # (N, D)
    expected = (tape["blocks.1.output"][1, 1:].detach() * slopes.mean(dim=0)).sum(dim=1).clamp(min=0)
    np.testing.assert_allclose(heat.grid.ravel(), expected.numpy(), atol=1e-12)
    assert heat.block == 1
    counted = look.gradcam(tape, 1, 2, block=-2)
    assert counted.block == 1 and np.array_equal(counted.grid, heat.grid)
    with pytest.raises(vitral.VitralError, match="class token"):
        look.gradcam(tape, block=-1)
    pooled = make(class_token=False, pool="mean")
    assert look.gradcam(vitral.watch(pooled, images(pooled))).block == 2


def test_one_block_uses_the_embedding(make, images) -> None:
    model = make(depth=1)
    assert look.gradcam(vitral.watch(model, images(model))).block is None


def test_unknown_stage() -> None:
    model = vitral.create("cnn", image_size=16)
    with pytest.raises(vitral.VitralError, match="block 3"):
        look.gradcam(vitral.watch(model, torch.zeros(1, 3, 16, 16)), block=3)
