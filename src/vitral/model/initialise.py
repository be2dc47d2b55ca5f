"""How the weights start (see `ModelConfig.initialisation`)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import nn

from vitral.model.head import AttentionPool

if TYPE_CHECKING:
    from vitral.model.vit import ViT


def initialise(vit: ViT) -> None:
    START[vit.config.initialisation](vit)


def initialise_head(vit: ViT) -> None:
    """A head that is put on later starts as it would have started with the rest."""
    if vit.config.initialisation == "vit":
        _linear(vit.head)
        if vit.distillation_head is not None:
            _linear(vit.distillation_head)


def _paper(vit: ViT) -> None:
    """Truncated normal 0.02 for matrices, tokens and positions; patches by their fan-in; zero biases."""
    _tokens(vit, 0.02)
    _linear(vit)
    projection = vit.patches.projection
    nn.init.trunc_normal_(projection.weight, std=math.sqrt(1 / projection.weight[0].numel()))
    if projection.bias is not None:
        nn.init.zeros_(projection.bias)


def _torch(vit: ViT) -> None:
    """PyTorch's defaults; standard Gaussian tokens and positions, as in the reports."""
    _tokens(vit, 1.0)


def _zero(vit: ViT) -> None:
    """Every residual branch starts as nothing: the stream begins as the patches themselves."""
    _tokens(vit, 0.02)
    for name, parameter in vit.blocks.named_parameters():
        if ".attention.projection." in name or ".mlp.contract." in name:
            nn.init.zeros_(parameter)


def _linear(part: nn.Module) -> None:
    for module in part.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def _tokens(vit: ViT, std: float) -> None:
    for parameter in vit.tokens.parameters():
        nn.init.normal_(parameter, std=std)
    for parameter in vit.positions.parameters():
        nn.init.normal_(parameter, std=std)
    if vit.pool is not None:
        nn.init.normal_(vit.pool.query if isinstance(vit.pool, AttentionPool) else vit.pool.probe, std=0.02)


START = {"vit": _paper, "torch": _torch, "zero": _zero}
