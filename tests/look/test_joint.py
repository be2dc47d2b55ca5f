from __future__ import annotations

import numpy as np
import pytest
import torch

from vitral.build import create
from vitral.look.joint import enlarge, joint_colours, patch_features, similar_patches


def test_colours_share_one_basis_over_pictures() -> None:
    torch.manual_seed(0)
    model, images = create("tiny", classes=0), torch.randn(3, 3, 32, 32)
    images[2] = images[0]
    found = joint_colours(model, images)
    assert found.colours.shape == (3, 8, 8, 3) and np.allclose(found.colours[0], found.colours[2], atol=1e-4)
    alone = joint_colours(model, images[:1]).colours[0]
    assert not np.allclose(found.colours[0], alone, atol=1e-2), "the other pictures have a say"
    assert [tile.size for tile in found.images()] == [(96, 96)] * 3


def test_colours_of_another_moment_are_turned_to_agree() -> None:
    """The same features with their axes mixed up and mirrored: plain colours are others, turned ones the same."""
    torch.manual_seed(0)
    model, images = create("tiny", classes=0), torch.randn(3, 3, 32, 32)
    later = joint_colours(model, images)
    turned = torch.linalg.qr(torch.randn(model.config.width, model.config.width))[0]
    before = patch_features(model, images)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vitral.look.joint.patch_features", lambda *_: -torch.einsum("bdhw,de->behw", before, turned))
        assert not np.allclose(joint_colours(model, images).colours, later.colours, atol=0.1)
        found = joint_colours(model, images, later)
    assert np.allclose(found.colours, later.colours, atol=1e-3) and np.allclose(found.explained, later.explained, atol=1e-4)


def test_likeness_is_the_cosine_to_the_chosen_patch() -> None:
    model, images = create("tiny", classes=0), torch.randn(2, 3, 32, 32)
    found, maps = similar_patches(model, images, (0.0, 0.99)), patch_features(model, images)
    assert found[1, 0, 7] == pytest.approx(1, abs=1e-5)
    wanted = torch.cosine_similarity(maps[1, :, 3, 4], maps[1, :, 0, 7], dim=0).item()
    assert found[1, 3, 4] == pytest.approx(wanted, abs=1e-5)


def test_a_patch_stays_a_square() -> None:
    assert enlarge(np.zeros((7, 7), np.uint8)).size == (98, 98)
