"""Another size: what must stay the same, stays."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from vitral.base.errors import UsageError
from vitral.base.origin import Origin, fact
from vitral.build import create
from vitral.weights.resize import adapt, resize_channels, resize_kernel, resize_positions, resize_relative

SIDES = st.integers(2, 9)


@given(SIDES, SIDES, SIDES, SIDES, st.integers(0, 5))
@settings(deadline=None, max_examples=25, derandomize=True)
def test_positions_of_the_prefix_stay_and_a_plane_stays_a_plane(h: int, w: int, h2: int, w2: int, prefix: int) -> None:
    constant = torch.randn(1, 1, 6)
    table = torch.cat([torch.randn(1, prefix, 6), constant.expand(1, h * w, 6)], dim=1)
    resized = resize_positions(table, (h, w), (h2, w2), prefix)
    assert resized.shape == (1, prefix + h2 * w2, 6)
    assert torch.equal(resized[:, :prefix], table[:, :prefix])
    assert torch.allclose(resized[:, prefix:], constant.expand(1, h2 * w2, 6), atol=1e-5)


def test_rows_stay_rows_and_columns_columns() -> None:
    rows = torch.arange(4.0).repeat_interleave(6)  # position = its row, on a 4×6 grid
    resized = resize_positions(rows.reshape(1, 24, 1), (4, 6), (8, 3), 0).reshape(8, 3)
    assert torch.allclose(resized[:, 0], resized[:, 2], atol=1e-5)
    assert (resized[1:, 0] > resized[:-1, 0]).all()


def test_the_same_grid_changes_nothing_and_timm_agrees() -> None:
    from timm.layers import resample_abs_pos_embed

    table = torch.randn(1, 2 + 49, 8)
    assert resize_positions(table, (7, 7), (7, 7), 2) is table
    expected = resample_abs_pos_embed(table, new_size=[5, 9], old_size=[7, 7], num_prefix_tokens=2)
    assert torch.allclose(resize_positions(table, (7, 7), (5, 9), 2), expected, atol=1e-6)


@pytest.mark.parametrize(("old", "new"), [((4, 4), (8, 8)), ((8, 8), (12, 12)), ((4, 6), (8, 12))])
def test_a_larger_kernel_sees_an_enlarged_patch_as_the_small_one_did(old, new) -> None:
    torch.manual_seed(0)
    kernel, patches = torch.randn(5, 3, *old), torch.randn(7, 3, *old)
    larger = F.interpolate(patches, size=new, mode="bicubic", align_corners=False)
    before = patches.flatten(1) @ kernel.flatten(1).T
    after = larger.flatten(1) @ resize_kernel(kernel, new).flatten(1).T
    assert torch.allclose(after, before, atol=1e-4)


def test_kernels_agree_with_timm() -> None:
    from timm.layers import resample_patch_embed

    kernel = torch.randn(4, 3, 8, 8)
    assert torch.allclose(resize_kernel(kernel, (12, 12)), resample_patch_embed(kernel, [12, 12], antialias=False), atol=1e-4)
    for new in ((4, 4), (4, 8), (8, 4)):
        assert torch.allclose(resize_kernel(kernel, new), resample_patch_embed(kernel, list(new), antialias=True), atol=1e-4), new


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_a_grey_picture_gives_what_it_gave_in_colour(channels) -> None:
    kernel, grey = torch.randn(5, 3, 4, 4), torch.randn(2, 1, 4, 4)
    expected = F.conv2d(grey.expand(-1, 3, -1, -1), kernel)
    got = F.conv2d(grey.expand(-1, channels, -1, -1), resize_channels(kernel, channels))
    assert torch.allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(
    "changes", [{}, {"registers": 2}, {"distillation_token": True}, {"registers": 2, "prefix_positions": "all"}, {"positions": "rotary"}]
)
def test_every_kind_of_prefix_is_resized_there_and_forward_works(changes) -> None:
    model = create("tiny", **changes)
    resized = adapt(model, image_size=(64, 48))
    assert resized(torch.zeros(1, 3, 64, 48)).shape == (1, 10)
    assert adapt(model, image_size=32) is model
    untouched = [name for name in model.state_dict() if name != "positions.table"]
    assert all(torch.equal(model.state_dict()[name], resized.state_dict()[name]) for name in untouched)


def test_as_many_patches_in_another_shape_are_another_grid() -> None:
    model = create("tiny", image_size=(16, 32))
    turned = adapt(model, image_size=(32, 16))
    expected = resize_positions(model.positions.table, (4, 8), (8, 4), 1)
    assert torch.equal(turned.positions.table, expected) and not torch.equal(turned.positions.table, model.positions.table)
    assert "positions resized: 4×8 → 8×4 patches" in turned.origin.changes


def test_other_channels_are_normalised_by_the_mean_of_the_former() -> None:
    model = create("tiny")
    model.origin = Origin(mean=fact((0.2, 0.4, 0.9)), std=fact((0.1, 0.2, 0.6)))
    grey = adapt(model, channels=1).origin
    assert grey.mean.value == pytest.approx((0.5,)) and grey.std.value == pytest.approx((0.3,)) and grey.mean.declared


def test_rivals_get_new_heads_and_channels() -> None:
    for name, size in (("resnet18", 96), ("cnn", 32), ("hybrid", 32)):
        model = create(name, image_size=size, classes=5)
        changed = adapt(model, channels=1, classes=3)
        assert changed.eval()(torch.zeros(2, 1, size, size)).shape == (2, 3)
        assert "head replaced" in " ".join(changed.origin.changes)


def test_what_has_no_meaning_in_another_size_is_refused() -> None:
    with pytest.raises(UsageError, match="no meaning"):
        adapt(create("cnn"), image_size=64)
    with pytest.raises(UsageError, match="no meaning"):
        adapt(create("resnet18", image_size=96), image_size=32)
    with pytest.raises(UsageError, match="patch size"):
        adapt(create("tiny", stride=2), patch_size=8)


def test_a_headless_model_gets_a_head_and_loses_it() -> None:
    model = create("tiny", classes=0)
    assert adapt(model, classes=4)(torch.zeros(1, 3, 32, 32)).shape == (1, 4)
    assert adapt(create("tiny"), classes=0)(torch.zeros(1, 3, 32, 32)).shape == (1, 48)


@pytest.mark.parametrize(("grid", "new"), [((4, 4), (8, 8)), ((5, 3), (7, 6)), ((6, 6), (4, 9)), ((2, 2), (3, 3))])
def test_relative_biases_of_near_patches_and_of_the_class_token_stay(grid, new) -> None:
    table = torch.randn((2 * grid[0] - 1) * (2 * grid[1] - 1) + 3, 2)
    resized = resize_relative(table, grid, new)
    assert resized.shape == ((2 * new[0] - 1) * (2 * new[1] - 1) + 3, 2)
    assert torch.equal(resized[-3:], table[-3:])
    before = table[:-3].reshape(2 * grid[0] - 1, 2 * grid[1] - 1, 2)
    after = resized[:-3].reshape(2 * new[0] - 1, 2 * new[1] - 1, 2)
    near = [slice(side - 2, side + 1) for side in grid], [slice(side - 2, side + 1) for side in new]
    assert torch.allclose(before[near[0][0], near[0][1]], after[near[1][0], near[1][1]], atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "relative"},
        {"positions": "learned+rotary", "rotary": "eva", "rotary_grid": (8, 8)},
        {"positions": "rotary", "rotary": "dinov3"},
        {"positions": "rotary", "rotary": "mixed"},
        {"positions": "none", "pool": "map", "class_token": False},
    ],
)
def test_every_kind_of_position_takes_another_shape(changes) -> None:
    torch.manual_seed(0)
    model = create("tiny", **changes).eval()
    other = adapt(model, image_size=(40, 64))
    assert other(torch.randn(1, 3, 40, 64)).isfinite().all()
    back = adapt(other, image_size=model.config.image_size)
    assert back.config == model.config
    grows = changes["positions"] in ("relative", "learned+rotary")
    assert any("positions resized" in change for change in other.origin.changes) == grows
