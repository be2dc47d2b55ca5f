"""What a Vision Transformer costs: multiply-adds of one forward pass, part by part.

One multiply-add is two FLOPs. T tokens, D numbers per token, M hidden numbers of the MLP, L blocks.
Norms, activations and additions are left out: they are below one per cent.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from vitral.config import ModelConfig


@dataclass(frozen=True)
class Cost:
    """FLOPs of one picture's forward pass."""

    embedding: int
    projections: int
    """q, k, v and output projections: grow with T·D²."""
    attention: int
    """Scores and weighted sums: grow with T²·D, the quadratic term."""
    mlp: int
    head: int

    @property
    def total(self) -> int:
        return self.embedding + self.projections + self.attention + self.mlp + self.head


def transformer_cost(config: ModelConfig) -> Cost:
    """Closed form for a ViT on pixels."""
    tokens, width = config.tokens, config.width
    patches = config.grid[0] * config.grid[1]
    gates = 3 if config.activation == "swiglu" else 2
    read = 2 * width if config.pool == "class+mean" else width
    heads = (read * config.head_hidden + config.head_hidden * config.classes) if config.head_hidden else read * config.classes
    return Cost(
        embedding=2 * patches * config.channels * config.patch_size[0] * config.patch_size[1] * width,
        projections=config.depth * 2 * tokens * 4 * width * width,
        attention=config.depth * 2 * 2 * tokens * tokens * width,
        mlp=config.depth * 2 * tokens * gates * width * config.mlp_width,
        head=2 * heads * (2 if config.distillation_token else 1),
    )


def counted_flops(model: nn.Module, image: tuple[int, int, int], backward: bool = False) -> int:
    """FLOPs of one forward pass as PyTorch counts them, for any module; nothing is computed (meta device).

    `backward`: and of the gradients of those parameters that require one.
    """
    import copy

    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    shadow = copy.deepcopy(model).to("meta").eval()
    with torch.set_grad_enabled(backward), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        output = shadow(torch.zeros(1, *image, device="meta"))
        if backward:
            output.sum().backward()
    return counter.get_total_flops()
