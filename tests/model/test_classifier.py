"""What a ViT and its rivals share."""

import numpy as np
import pytest
import torch
from torch import nn

from vitral.base.errors import UsageError
from vitral.build import create
from vitral.model.classifier import evaluating
from vitral.model.tape import Tape

FAMILIES = {"tiny": (3, 32, 32), "cnn": (3, 32, 32), "resnet18": (3, 64, 64), "hybrid": (3, 32, 32)}


def small(name: str, **changes):
    return create(name, image_size=FAMILIES[name][1:], **changes).eval()


@pytest.mark.parametrize("pool", ["class", "mean", "class+mean"])
def test_several_blocks_are_read_as_the_last_one_is(pool: str) -> None:
    model = create("tiny", depth=3, pool=pool).eval()
    images = torch.randn(2, model.config.channels, *model.config.image_size)
    one, two = model.pooled(images), model.pooled(images, blocks=2)
    assert two.shape[1] == 2 * one.shape[1] and torch.equal(two[:, one.shape[1] :], one) and not torch.allclose(two[:, : one.shape[1]], one)
    with pytest.raises(UsageError, match="4 blocks"):
        model.pooled(images, blocks=4)
    with pytest.raises(UsageError, match="cnn"):
        create("cnn", classes=2).pooled(images, blocks=2)


def test_wrong_pictures_are_refused_with_what_is_wanted():
    model = create("tiny")
    with pytest.raises(UsageError, match="33, 32"):
        model(torch.zeros(1, 3, 33, 32))


@pytest.mark.parametrize("name", ["tiny", "cnn"])
def test_what_is_no_tensor_of_floats_is_refused_with_a_way_out(name: str) -> None:
    model = small(name)
    shape = (1, model.config.channels, *model.config.image_size)
    for given in ("cat.jpg", np.zeros(shape, np.float32), [torch.zeros(shape[1:])]):
        with pytest.raises(UsageError, match=type(given).__name__):
            model(given)
    with pytest.raises(UsageError, match="uint8"):
        model(torch.zeros(shape, dtype=torch.uint8))
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        with pytest.raises(UsageError, match=str(dtype).removeprefix("torch.")):
            model(torch.zeros(shape, dtype=dtype))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert model(torch.zeros(shape, dtype=torch.bfloat16)).isfinite().all()
    assert model.double()(torch.zeros(shape, dtype=torch.float64)).dtype == torch.float64
    with pytest.raises(UsageError, match="blocks = 1"):
        model.features(torch.zeros(shape), blocks=1)  # type: ignore[arg-type]


def test_features_are_maps_on_the_grid():
    model = create("tiny", image_size=(32, 48), registers=2).eval()
    maps = model.features(torch.randn(2, 3, 32, 48), blocks=[0, -1])
    assert [tuple(value.shape) for value in maps] == [(2, 48, 8, 12)] * 2
    tape = Tape(model, keep=["blocks.1.output"])
    images = torch.randn(2, 3, 32, 48)
    model(images, tape=tape)
    # The patch in row 2, column 5 is token prefix + 2·12 + 5.
    assert torch.equal(model.features(images, [1])[0][0, :, 2, 5], tape["blocks.1.output"][0, 3 + 2 * 12 + 5])
    with pytest.raises(UsageError, match="0 to 1"):
        model.features(images, [2])


def test_pooled_is_what_the_head_reads():
    model = create("tiny").eval()
    images = torch.randn(2, 3, 32, 32)
    assert torch.allclose(model.head(model.pooled(images)), model(images), atol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_new_head_on_the_same_body(name):
    model = small(name).eval()
    images = torch.randn(2, *FAMILIES[name])
    other = model.with_head(classes=5)
    assert other(images).shape == (2, 5) and other.config.classes == 5 and model(images).shape == (2, model.config.classes)
    assert torch.equal(other.pooled(images), model.pooled(images))
    assert not other.training and type(other) is type(model)
    assert other.origin.changes == (f"head replaced: {model.config.classes} → 5 classes, untrained (seed 0)",)
    assert other.origin.classes.value == () and other.origin.classes.declared
    headless = model.with_head(0)
    assert torch.equal(headless(images), model.pooled(images))
    assert headless.with_head(5)(images).shape == (2, 5)


def test_a_new_head_shares_nothing_and_starts_the_same_way_each_time():
    model = create("tiny", distillation_token=True)
    before = torch.random.get_rng_state()
    one, two, other = model.with_head(10), model.with_head(10), model.with_head(10, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before), "nobody else's random numbers change"
    assert torch.equal(one.head.linear.weight, two.head.linear.weight)
    assert not torch.equal(one.head.linear.weight, other.head.linear.weight)
    assert not torch.equal(one.head.linear.weight, model.head.linear.weight)
    assert not torch.equal(one.distillation_head.linear.weight, model.distillation_head.linear.weight)
    assert one.head.linear.weight.std().item() == pytest.approx(0.02, rel=0.2) and not one.head.linear.bias.any()
    with torch.no_grad():
        one.patches.projection.weight.zero_()
    assert model.patches.projection.weight.any()


def test_a_new_head_goes_where_the_body_is():
    model = create("tiny").to(torch.float64)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    other = model.with_head(5)
    assert other.head.linear.weight.dtype == torch.float64 and other.training
    assert [name for name, parameter in other.named_parameters() if parameter.requires_grad] == ["head.linear.weight", "head.linear.bias"]


def test_it_says_what_it_is():
    model = create("tiny").with_head(5)
    assert repr(model).splitlines() == [
        "ViT(32×32×3 → 5 classes, patch 4×4, width 48, 2 blocks, 3 heads, 43,781 parameters)",
        "  created here; head replaced: 10 → 5 classes, untrained (seed 0)",
    ]
    assert repr(create("cnn", classes=0, channels=1)).startswith("CNN(32×32×1 → features, 5,8")
    assert repr(small("resnet18")).startswith("resnet18(64×64×3 → 1000 classes, 11,")
    assert repr(model.head).startswith("MLPHead(\n  (linear): Linear(in_features=48"), "its parts still show PyTorch's tree"


def test_evaluating_puts_everything_back():
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.BatchNorm1d(3)))
    model[1].eval()
    with pytest.raises(RuntimeError, match="on the way"), evaluating(model):
        assert not any(module.training for module in model.modules())
        raise RuntimeError("on the way")
    assert [module.training for module in model.modules()] == [True, True, False, False]
