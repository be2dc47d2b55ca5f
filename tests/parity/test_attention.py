"""The attention of timm's and transformers' own models, run eager, is the attention that our tape shows of the adopted model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral

TOLERANCE = 1e-5


def shake(module: torch.nn.Module) -> None:
    """Random weights large enough for uneven attention: a fresh model looks everywhere alike and would prove nothing."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if "norm" in name and name.endswith("weight") else 0.15 * noise)


def timm_attention(module, images: torch.Tensor) -> list[torch.Tensor]:
    """What enters the dropout on the weights when the fused kernel is off."""
    seen: list[torch.Tensor] = []
    hooks = []
    for block in module.blocks:
        block.attn.fused_attn = False
        hooks.append(block.attn.attn_drop.register_forward_hook(lambda _, inputs, output: seen.append(inputs[0].detach())))
    with torch.no_grad():
        module(images)
    for hook in hooks:
        hook.remove()
    return seen


def check(model, images: torch.Tensor, theirs: list[torch.Tensor]) -> None:
    tape = vitral.watch(model, images)
    assert len(theirs) == model.config.depth
    for block, expected in enumerate(theirs):
        ours = tape.attention(block)
        assert ours.shape == expected.shape
        assert float((ours - expected).abs().max()) <= TOLERANCE
        assert float(expected.std()) > 1e-3
    heat = vitral.look.attention(tape, 1, block=-1, head=1)
    np.testing.assert_allclose(heat.grid.ravel(), theirs[-1][1, 1, 0, model.config.prefix :].numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "vit_small_patch14_reg4_dinov2"])
def test_timm(name: str) -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    side = 8 if "16" in name else 7
    module = timm.create_model(name, img_size=4 * side, patch_size=side, embed_dim=48, depth=3, num_heads=3, num_classes=7).eval()
    shake(module)
    images = torch.randn(2, 3, 4 * side, 4 * side)
    check(vitral.adopt(module), images, timm_attention(module, images))


def test_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=3, intermediate_size=96, image_size=32, patch_size=8, num_labels=7,
        attn_implementation="eager",
    )  # fmt: skip
    module = transformers.ViTForImageClassification(config).eval()
    shake(module)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        theirs = module(images, output_attentions=True).attentions
    assert theirs
    check(vitral.adopt(module), images, list(theirs))
