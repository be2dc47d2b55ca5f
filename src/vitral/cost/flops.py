"""How many FLOPs a model takes: a ViT's in closed form, any module's counted, and what learning adds to looking.

One multiply-add is two FLOPs. T tokens, D numbers per token, M hidden numbers of the MLP, L blocks.
Norms, activations and additions are left out: they are below one per cent.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vitral.build import shadow
from vitral.config import ModelConfig

WHOLE = 3.0
"""Forward passes that learning from an image costs where everything learns: one forward, two backward, as the literature counts."""


@dataclass(frozen=True)
class _Flops:
    """Of one image's forward pass through a ViT, part by part."""

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


def vit_flops(config: ModelConfig, read: int | None = None) -> _Flops:
    """Closed form for a ViT on pixels. `read`: of the last block only so many tokens are read, and no more of them made."""
    tokens, width = config.tokens, config.width
    made = config.depth * tokens - (0 if read is None else tokens - read)  # over all blocks; keys and values are of every token
    patches = config.grid[0] * config.grid[1]
    gates = 3 if config.activation == "swiglu" else 2
    pooled = 2 * width if config.pool == "class+mean" else width
    head = (pooled * config.head_hidden + config.head_hidden * config.classes) if config.head_hidden else pooled * config.classes
    return _Flops(
        embedding=2 * patches * config.channels * config.patch_size[0] * config.patch_size[1] * width,
        projections=2 * (3 * config.depth * tokens + made) * width * width,
        attention=2 * 2 * made * tokens * width,
        mlp=2 * made * gates * width * config.mlp_width,
        head=2 * head * (2 if config.distillation_token else 1),
    )


def forward_flops(config: ModelConfig) -> int:
    """Of one image's forward pass, for every family."""
    if config.family == "vit":
        return vit_flops(config).total
    return counted_flops(shadow(config), (config.channels, *config.image_size))


def counted_flops(model: nn.Module, image: tuple[int, int, int], backward: bool = False) -> int:
    """Of one forward pass as PyTorch counts them, for any module; nothing is computed (meta device).

    `backward`: and of the gradients of those parameters that require one.
    """
    counted = copy.deepcopy(model).to("meta").eval()
    with torch.set_grad_enabled(backward), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        output = counted(torch.zeros(1, *image, device="meta"))
        if backward:
            output.sum().backward()
    return counter.get_total_flops()


def learning_passes(model: nn.Module, image: tuple[int, int, int]) -> float:
    """Forward passes that learning from one image costs.

    Where parameters are frozen, the backward pass is counted as it runs: it ends at the first layer that learns, and only layers
    that learn have gradients of weights.
    """
    if all(parameter.requires_grad for parameter in model.parameters()):
        return WHOLE
    return counted_flops(model, image, backward=True) / counted_flops(model, image)


def step_flops(learner: nn.Module, inputs: Sequence[Tensor], **options: Any) -> int:
    """Of a step of `learner`, which gives `learner(*inputs, **options).loss`, forward and backward as they run; nothing is computed."""
    with FakeTensorMode(allow_non_fake_inputs=True), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        weights, shown = stand_ins(learner, inputs)
        torch.func.functional_call(learner, weights, tuple(shown), options).loss.backward()
    return counter.get_total_flops()


def stand_ins(learner: nn.Module, inputs: Sequence[Tensor]) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Weights and inputs on the CPU that hold nothing, wherever the true ones lie: to be made and used inside a FakeTensorMode."""
    values = {
        name: torch.empty(value.shape, dtype=value.dtype, requires_grad=value.requires_grad)
        for name, value in (*learner.named_parameters(), *learner.named_buffers())
    }
    return values, [torch.zeros(value.shape, dtype=value.dtype) for value in inputs]


# ---- layers of other kinds -----------------------------------------------------------------------------------------------------

_FLOPS_PER_TERM = {"self-attention": 4, "recurrent": 4, "convolution": 2, "restricted self-attention": 4}
"""FLOPs of a plain layer divided by its leading term. Attention has two products (scores, mix), a recurrent step two matrices
(input, state), a convolution one; each multiply-add counts as two."""


@dataclass(frozen=True)
class _LayerCost:
    """A kind of layer on n tokens of d numbers."""

    layer: str
    term: str
    """How it grows."""
    operations: int
    """The term in numbers."""
    flops: int


def layer_costs(n: int, d: int, k: int = 3, r: int = 9) -> list[_LayerCost]:
    """Table 1 of "Attention Is All You Need" in numbers: n tokens, d numbers each, kernels of k, r neighbours to look at."""
    rows = [
        ("self-attention", "n²·d", n * n * d),
        ("recurrent", "n·d²", n * d * d),
        ("convolution", "k·n·d²", k * n * d * d),
        ("restricted self-attention", "r·n·d", r * n * d),
    ]
    return [_LayerCost(layer, term, operations, _FLOPS_PER_TERM[layer] * operations) for layer, term, operations in rows]


def even_tokens(width: int, mlp_width: int) -> int:
    """Number of tokens at which the quadratic part of a block, 4·n²·d, has caught up with the rest, 8·n·d² + 4·n·d·m.

    The table of layer costs speaks of attention alone: in a ViT block the square stays the smaller part until here.
    """
    return 2 * width + mlp_width


def attention_map_ratio(image_size: tuple[int, int], grid: tuple[int, int]) -> float:
    """How much smaller the attention map is over patches than over pixels: (H·W)² / (n_h·n_w)²."""
    return (image_size[0] * image_size[1] / (grid[0] * grid[1])) ** 2
