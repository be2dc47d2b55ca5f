"""Heads, blocks and patches off in one pass, each copy of an image without other parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vitral import look
from vitral.base.errors import UsageError
from vitral.build import create
from vitral.look.switch_off import Off, check_off, rollout_without


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    torch.manual_seed(3)
    model = create("tiny")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


@pytest.fixture(scope="module")
def image() -> torch.Tensor:
    return torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(1))


def probability(logits: np.ndarray, target: int) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True))[:, target]


def test_it_agrees_with_ablation(model, image) -> None:
    """What the explorer shows for a head or a block is what the library measures."""
    tape = look.watch(model, image)
    ablation = look.ablate(tape)
    cuts = [Off(heads=((block, head),)) for block in range(2) for head in range(3)]
    heads = probability(rollout_without(model, image, cuts)[0], ablation.target) - ablation.whole
    np.testing.assert_allclose(heads.reshape(2, 3), ablation.heads, atol=1e-6)
    blocks = (
        probability(rollout_without(model, image, [Off(attention=(0,), mlp=(0,)), Off(attention=(1,), mlp=(1,))])[0], ablation.target)
        - ablation.whole
    )
    np.testing.assert_allclose(blocks, ablation.parts[:, 2], atol=1e-6)
    assert np.abs(ablation.heads).max() > 1e-4, "else this proves nothing"


def test_nothing_off_is_the_model_and_its_rollout(model, image) -> None:
    logits, maps = rollout_without(model, image, [Off(), Off()])
    with torch.no_grad():
        np.testing.assert_allclose(logits[0], model(image[None])[0].numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(logits[0], logits[1])
    np.testing.assert_allclose(maps[0], look.rollout(look.watch(model, image)).grid, rtol=1e-5)


def test_copies_do_not_touch_each_other(model, image) -> None:
    cuts = [Off(heads=((1, 2),)), Off(patches=(5,)), Off(attention=(0,), mlp=(0,))]
    together, _ = rollout_without(model, image, cuts)
    for index, off in enumerate(cuts):
        np.testing.assert_allclose(rollout_without(model, image, [off])[0][0], together[index], rtol=1e-4, atol=1e-5)


def test_a_patch_is_covered_with_the_mean_colour(model, image) -> None:
    covered = image.clone()
    covered[:, 4:8, 0:4] = 0  # patch 8 of 8 × 8: second row, first column
    with torch.no_grad():
        expected = model(covered[None])[0].numpy()
    np.testing.assert_allclose(rollout_without(model, image, [Off(patches=(8,))])[0][0], expected, rtol=1e-4, atol=1e-5)


def test_patches_are_counted_row_by_row() -> None:
    torch.manual_seed(0)
    wide, image = create("tiny", image_size=(16, 32)).eval(), torch.randn(3, 16, 32)
    covered = image.clone()
    covered[:, 4:8, 24:28] = 0  # second row, seventh of eight columns
    with torch.no_grad():
        expected = wide(covered[None])[0].numpy()
    np.testing.assert_allclose(rollout_without(wide, image, [Off(patches=(14,))])[0][0], expected, rtol=1e-4, atol=1e-5)


def test_everything_off_leaves_the_residual_path(model, image) -> None:
    _, maps = rollout_without(model, image, [Off(attention=(0, 1), mlp=(0, 1))])
    assert maps[0].max() == 0, "nothing reaches the class token from any patch"


def test_a_rival_has_no_heads_or_blocks() -> None:
    with pytest.raises(UsageError, match="heads"):
        check_off(create("cnn").eval(), Off(heads=((0, 0),)))


@pytest.mark.parametrize("off", [Off(heads=((2, 0),)), Off(heads=((0, 3),)), Off(attention=(-1,)), Off(patches=(64,))])
def test_parts_that_do_not_exist(model, image, off: Off) -> None:
    with pytest.raises(UsageError, match="exist"):
        rollout_without(model, image, [off])
