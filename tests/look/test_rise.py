"""RISE against its sum, written out, and on a picture whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral import look
from vitral.look.rise import _random_masks


@torch.no_grad()
def test_equals_the_sum_over_masks(make, images) -> None:
    model = make().float()
    batch = images(model).float()
    heat = look.rise(vitral.watch(model, batch), 1, target=2, masks=24, cells=3, keep=0.4, seed=1)
    masks = _random_masks(24, 3, 0.4, (16, 16), 1)
    top, total = np.zeros((4, 4)), np.zeros((4, 4))
    for mask in masks:
        share = float(model((batch[1] * mask)[None]).softmax(1)[0, 2])
        sums = mask.view(4, 4, 4, 4).sum(dim=(1, 3)).numpy()
        top, total = top + share * sums, total + sums
    np.testing.assert_allclose(heat.grid, top / total, rtol=1e-5)


def test_masks_are_smooth_and_keep_their_share() -> None:
    masks = _random_masks(400, 4, 0.3, (17, 20), 0)
    assert masks.shape == (400, 17, 20) and masks.min() >= 0 and masks.max() <= 1 + 1e-6
    assert float(masks.mean()) == pytest.approx(0.3, abs=0.02)
    assert len(torch.unique(masks)) > 10


def test_nonsense_is_refused(make, images) -> None:
    with pytest.raises(vitral.VitralError, match="1 masks"):
        look.rise(vitral.watch(make(), images(make())), masks=1)
