"""MixUp and CutMix: the right shares of batches, areas that agree with labels, partners that need no other rank."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vitral.data.images.mixing import GROUP, Mix, draw_mix, mix_images, partners, whole_groups


def test_shares_of_batches() -> None:
    kinds = [mix.kind if (mix := draw_mix(0.2, 0.5, (32, 32), 0, 0, step)) else "none" for step in range(3000)]
    for kind, share in (("cutmix", 0.5), ("mixup", 0.2), ("none", 0.3)):
        assert abs(kinds.count(kind) / 3000 - share) < 0.035
    assert draw_mix(0.0, 0.0, (32, 32), 0) is None
    assert draw_mix(0.2, 0.5, (32, 32), 0, 1, 2) == draw_mix(0.2, 0.5, (32, 32), 0, 1, 2)


def test_mixups_lam_is_beta_and_cutmix_area_its_lam() -> None:
    mixes = [draw_mix(1.0, 0.0, (32, 32), step) for step in range(2000)]
    lams = np.array([mix.lam for mix in mixes if mix])
    assert abs(lams.mean() - 0.5) < 0.03
    assert lams.var() == pytest.approx(0.25 / (2 * 0.8 + 1), rel=0.1)  # Beta(0.8, 0.8)
    for step in range(200):
        mix = draw_mix(0.0, 1.0, (24, 40), step)
        assert mix is not None
        images = torch.arange(GROUP).float().view(-1, 1, 1, 1).expand(-1, 1, 24, 40)
        partner = partners(0, GROUP, GROUP, mix.shift)
        mixed = mix_images(images, partner, mix)
        own = (mixed == images).float().mean((1, 2, 3))
        assert torch.allclose(own, torch.full((GROUP,), mix.lam))


def test_cutmix_rectangles_have_a_uniform_area_before_the_border_cuts_them() -> None:
    """Of a square of side w = √a around any point, w − w²/4 stays inside on each axis; with a uniform the mean area is 1/2 − 1/5 + 1/48."""
    pasted = [1 - mix.lam for step in range(3000) if (mix := draw_mix(0.0, 1.0, (500, 400), step))]
    assert np.mean(pasted) == pytest.approx(1 / 2 - 1 / 5 + 1 / 48, abs=0.015)


def test_mixup_is_a_weighted_sum_and_leaves_its_input() -> None:
    images = torch.rand(8, 3, 4, 4)
    before, partner = images.clone(), partners(0, 8, 8, 3)
    mixed = mix_images(images, partner, Mix("mixup", 0.7, 3))
    assert torch.allclose(mixed, 0.7 * images + 0.3 * images[partner])
    assert torch.equal(images, before)


def test_partners_stay_in_their_group_and_are_others() -> None:
    for total in (1, 5, 8, 13, 32):
        for shift in range(1, GROUP):
            whole = partners(0, total, total, shift).tolist()
            assert sorted(whole) == list(range(total))  # a permutation: no picture is used twice
            assert all(a // GROUP == b // GROUP for a, b in enumerate(whole))
    assert all(a != b for a, b in enumerate(partners(0, 16, 16, 3).tolist()))
    assert whole_groups(3, 9, 20) == (0, 16) and whole_groups(17, 19, 20) == (16, 20)
