from __future__ import annotations

import numpy as np
import pytest
import torch

from vitral import look
from vitral.base.errors import UsageError
from vitral.build import create
from vitral.look.occlusion import grid_of
from vitral.web.surgery import Cut, operate


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
    """What the explorer shows for a head or a block is what the library says of it."""
    tape = look.watch(model, image)
    ablation = look.ablate(tape)
    cuts = [Cut(heads=((block, head),)) for block in range(2) for head in range(3)]
    heads = probability(operate(model, image, cuts).logits, ablation.target) - ablation.whole
    np.testing.assert_allclose(heads.reshape(2, 3), ablation.heads, atol=1e-6)
    blocks = probability(operate(model, image, [Cut(blocks=(0,)), Cut(blocks=(1,))]).logits, ablation.target) - ablation.whole
    np.testing.assert_allclose(blocks, ablation.parts[:, 2], atol=1e-6)
    assert np.abs(ablation.heads).max() > 1e-4, "else this proves nothing"


def test_nothing_off_is_the_model_and_its_rollout(model, image) -> None:
    outcome = operate(model, image, [Cut(), Cut()])
    with torch.no_grad():
        np.testing.assert_allclose(outcome.logits[0], model(image[None])[0].numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(outcome.logits[0], outcome.logits[1])
    np.testing.assert_allclose(outcome.maps[0], look.rollout(look.watch(model, image)).grid, rtol=1e-5)


def test_copies_do_not_touch_each_other(model, image) -> None:
    cuts = [Cut(heads=((1, 2),)), Cut(patches=(5,)), Cut(blocks=(0,))]
    together = operate(model, image, cuts)
    for index, cut in enumerate(cuts):
        np.testing.assert_allclose(operate(model, image, [cut]).logits[0], together.logits[index], rtol=1e-4, atol=1e-5)


def test_a_patch_is_covered_with_the_mean_colour(model, image) -> None:
    covered = image.clone()
    covered[:, 4:8, 0:4] = 0  # patch 8 of 8 × 8: second row, first column
    with torch.no_grad():
        expected = model(covered[None])[0].numpy()
    np.testing.assert_allclose(operate(model, image, [Cut(patches=(8,))]).logits[0], expected, rtol=1e-4, atol=1e-5)


def test_patches_are_counted_row_by_row() -> None:
    torch.manual_seed(0)
    wide, image = create("tiny", image_size=(16, 32)).eval(), torch.randn(3, 16, 32)
    covered = image.clone()
    covered[:, 4:8, 24:28] = 0  # second row, seventh of eight columns
    with torch.no_grad():
        expected = wide(covered[None])[0].numpy()
    np.testing.assert_allclose(operate(wide, image, [Cut(patches=(14,))]).logits[0], expected, rtol=1e-4, atol=1e-5)


def test_everything_off_leaves_the_residual_path(model, image) -> None:
    outcome = operate(model, image, [Cut(blocks=(0, 1))])
    assert outcome.maps[0].max() == 0, "nothing reaches the class token from any patch"


def test_rivals_lose_patches_only(image) -> None:
    torch.manual_seed(0)
    cnn = create("cnn").eval()
    assert grid_of(cnn) == (14, 14)
    outcome = operate(cnn, image, [Cut(), Cut(patches=tuple(range(100)))])
    assert outcome.method == "gradcam"
    assert not np.allclose(outcome.logits[0], outcome.logits[1])
    with pytest.raises(UsageError, match="no heads"):
        operate(cnn, image, [Cut(heads=((0, 0),))])


@pytest.mark.parametrize("cut", [Cut(heads=((2, 0),)), Cut(heads=((0, 3),)), Cut(blocks=(-1,)), Cut(patches=(64,))])
def test_parts_that_do_not_exist(model, image, cut: Cut) -> None:
    with pytest.raises(UsageError, match="exist"):
        operate(model, image, [cut])


def test_a_cut_is_read_from_an_address() -> None:
    assert Cut.parse("") == Cut()
    assert Cut.parse("p17,h3.1,b5,h0.2,p2,b5") == Cut(((0, 2), (3, 1)), (5,), (2, 17))
    for wrong in ("x1", "h3", "b", "p-1", "h1.2.3", "b1.2", "p99999999", "b²"):
        with pytest.raises(UsageError, match="no part"):
            Cut.parse(wrong)
