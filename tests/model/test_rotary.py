"""Rotary positions: what every kind of angles promises, and where they differ."""

import pytest
import torch

from vitral.build import create
from vitral.config import ModelConfig
from vitral.look.watch import watch
from vitral.model.rotary import ANGLES, make_rotary, rotate

KINDS = [*ANGLES, "mixed"]


@pytest.mark.parametrize("kind", KINDS)
def test_rotary_scores_depend_on_the_offset_alone(kind):
    """Moving two patches together leaves their score as it was."""
    model = create("tiny", image_size=32, positions="rotary", rotary=kind, rotary_grid=(4, 4), width=48, heads=3)
    rotation = model.rotary().of_block(1)
    torch.manual_seed(0)
    query, key = torch.randn(16), torch.randn(16)
    turned_query, turned_key = (rotate(value.expand(1, 65, 3, 16), rotation)[0, :, 0] for value in (query, key))

    def token(row, column):
        return 1 + row * 8 + column

    first = turned_query[token(1, 2)] @ turned_key[token(3, 5)]
    moved = turned_query[token(4, 1)] @ turned_key[token(6, 4)]
    other = turned_query[token(4, 1)] @ turned_key[token(5, 4)]
    assert torch.allclose(first, moved, atol=1e-5)
    assert not torch.allclose(first, other, atol=1e-3)
    assert torch.equal(turned_query[0], query), "prefix tokens do not turn"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_watched_drops_patches_and_learns(kind):
    torch.manual_seed(0)
    model = create("tiny", positions="learned+rotary", rotary=kind, registers=1)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(model.eval()(images, keep_patches=1.0), model(images))
    assert model(images, keep_patches=0.5).isfinite().all()
    tape = watch(model, images, keep=["*.attention.weights", "*.value", "*.heads"])
    assert torch.allclose(tape.logits, model(images), atol=1e-5)
    assert torch.allclose(tape.attention(1) @ tape["blocks.1.attention.value"], tape["blocks.1.attention.heads"], atol=1e-5)
    model.train()(images).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_neighbours_turn_together_or_halves_do():
    config = ModelConfig(image_size=(8, 16), patch_size=(4, 4), width=16, heads=2, depth=1, positions="rotary", rotary="axial")
    value = torch.arange(8.0).expand(1, config.tokens, 1, 8)
    turned = rotate(value, make_rotary(config)())[0, 2, 0]  # row 0, column 1: the first pair turns by one
    angle = torch.tensor(1.0)
    assert torch.allclose(turned[:2], torch.stack([-angle.sin(), angle.cos()]))
    assert torch.equal(turned[4:], value[0, 0, 0, 4:]), "the second half belongs to the row, and that is 0"


def test_angles_on_a_larger_grid_follow_the_family():
    """EVA's and Perception Encoder's are squeezed into the grid they were made for, DINOv3's between -1 and 1; RoPE-ViT's go on."""

    def furthest(kind, side):
        config = ModelConfig(
            image_size=(side, side), patch_size=(4, 4), width=16, heads=2, rotary=kind, positions="rotary", rotary_grid=(4, 4)
        )
        return ANGLES[kind](config).max().item()

    for kind in ("eva", "perception", "dinov3"):
        assert furthest(kind, 64) < furthest(kind, 16) * 1.35
    assert furthest("axial", 64) == 5 * furthest("axial", 16) == 15
