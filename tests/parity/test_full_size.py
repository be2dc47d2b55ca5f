"""Full-size models by name, randomly initialised: torchvision's five ViTs and ten of timm's."""

from __future__ import annotations

import pytest
import torch

from vitral.weights.adopt import adopt

TORCHVISION = ["vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14"]
TIMM = [
    "vit_tiny_patch16_224",
    "vit_small_patch16_224",
    "vit_base_patch32_224",
    "vit_base_patch16_224",
    "vit_large_patch32_224",
    "deit_small_distilled_patch16_224",
    "deit3_base_patch16_224",
    "vit_small_patch14_dinov2",
    "vit_base_patch14_reg4_dinov2",
    "vit_base_patch32_clip_quickgelu_224",
]
RESNETS = ["resnet50", "resnet152"]


def _check(module) -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim < 2:  # zero biases and unit norms would hide a wrong map
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
        for name, parameter in module.named_parameters():
            if name.startswith("heads.head"):  # torchvision starts its head at zero
                parameter.normal_(std=0.02, generator=generator)
    model = adopt(module)
    assert max(model.origin.parity.values()) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", TORCHVISION + RESNETS)
def test_torchvision(name) -> None:
    import torchvision

    torch.manual_seed(0)
    _check(torchvision.models.get_model(name, weights=None))


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMM)
def test_timm(name) -> None:
    import timm

    torch.manual_seed(0)
    _check(timm.create_model(name))
