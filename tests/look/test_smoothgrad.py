"""SmoothGrad against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral import look


def test_equals_the_mean_of_gradients(make, images) -> None:
    model = make()
    batch = images(model)
    heat = look.smoothgrad(vitral.watch(model, batch), 1, target=2, copies=5, noise=0.2, seed=4)
    draw, image = torch.Generator().manual_seed(4), batch[1]
    noise = torch.randn(5, *image.shape, generator=draw).double() * 0.2 * (image.max() - image.min())
    slopes = []
    for one in noise:
        x = (image + one).requires_grad_()
        model(x[None])[0, 2].backward()
        slopes.append(x.grad)
    strength = torch.stack(slopes).mean(dim=0).abs().sum(dim=0)
    np.testing.assert_allclose(heat.grid, strength.view(4, 4, 4, 4).sum(dim=(1, 3)).numpy(), rtol=1e-10)


def test_without_noise_it_is_the_gradient_and_nonsense_is_refused(make, images) -> None:
    tape = vitral.watch(make(), images(make()))
    np.testing.assert_allclose(look.smoothgrad(tape, copies=1, noise=0).grid, look.smoothgrad(tape, copies=3, noise=0).grid)
    with pytest.raises(vitral.VitralError, match="0 copies"):
        look.smoothgrad(tape, copies=0)
