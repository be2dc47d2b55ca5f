"""Without positions a ViT does not know where its patches are; with them it does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral.base.errors import UsageError
from vitral.look.shuffle import _reordered, _without_positions, shuffle

SIZES = {"image_size": (16, 24), "patch_size": 4, "channels": 3, "classes": 5, "width": 24, "depth": 2, "heads": 2, "mlp_width": 48}


def watched(**changes: object) -> vitral.Tape:
    torch.manual_seed(0)
    sizes = {**SIZES, **changes}
    model = vitral.create("ti/16", **sizes)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return vitral.watch(model, torch.randn(2, sizes["channels"], 16, 24))


@pytest.mark.parametrize("kind", ["learned", "sincos", "rotary", "relative"])
@pytest.mark.parametrize("pool", ["class", "mean"])
def test_only_positions_know_the_order(kind: str, pool: str) -> None:
    found = shuffle(watched(positions=kind, pool=pool), item=1, orders=4)
    assert found.without.max() < 2e-6 and found.same_without == 4
    assert found.change.min() > 1e-4 and len(found.change) == 4
    assert "without them it stays in 4" in found.finding and found.shuffled.size == (24, 16)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_pictures_of_any_number_of_channels_are_shown(channels: int) -> None:
    assert shuffle(watched(channels=channels), orders=1).image.mode == "RGB"


def test_patches_change_places_whole() -> None:
    config = watched().config
    image = torch.arange(3 * 16 * 24.0).reshape(3, 16, 24)
    order = np.random.default_rng(0).permutation(24)
    moved = _reordered(image, order, config)
    for place, taken in enumerate(order):
        (row, column), (row_before, column_before) = divmod(place, 6), divmod(int(taken), 6)
        now, before = moved[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4], (4 * row_before, 4 * column_before)
        assert torch.equal(now, image[:, before[0] : before[0] + 4, before[1] : before[1] + 4])
    assert torch.equal(_reordered(image, np.arange(24), config), image)


def test_without_positions_keeps_all_else() -> None:
    model = watched().model
    bare = _without_positions(model)
    assert set(model.state_dict()) - set(bare.state_dict()) == {name for name in model.state_dict() if "position" in name}
    assert all(torch.equal(model.state_dict()[name], value) for name, value in bare.state_dict().items())


def test_refused() -> None:
    with pytest.raises(UsageError, match="overlap"):
        shuffle(watched(stride=2))
    with pytest.raises(UsageError, match="no head"):
        shuffle(watched(classes=0))
    with pytest.raises(UsageError, match="0 orders"):
        shuffle(watched(), orders=0)
