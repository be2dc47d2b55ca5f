"""Queries, keys and values of all heads from one product; on a GPU in bf16 their gradients go over memory once less.

The plain twin is the linear layer, cut into three, and everything but bf16 on a CUDA GPU runs it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from vitral.kernels.gelu import has_kernel

if torch.cuda.is_available():  # Triton is loaded where there is a GPU to run it
    from vitral.kernels import qkv_triton  # noqa: F401


def queries_keys_values(tokens: torch.Tensor, layer: nn.Module, heads: int) -> tuple[torch.Tensor, ...]:
    """Tokens (B, T, D) → three (B, T, heads, d)."""
    if not torch.is_grad_enabled() or not has_kernel(layer, tokens):
        return layer(tokens).unflatten(-1, (3, heads, -1)).unbind(2)
    joined = F.linear(tokens, layer.weight, layer.bias.detach()).unflatten(-1, (3, heads, -1))
    return _Apart.apply(joined, layer.bias)


class _Apart(torch.autograd.Function):
    """Cut into three; backwards, stack three gradients and sum them for the bias in the same pass."""

    @staticmethod
    def forward(joined: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:  # noqa: ARG004
        return joined.unbind(2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor], output: tuple[torch.Tensor, ...]) -> None:  # noqa: ARG004
        ctx.dtype = inputs[1].dtype

    @staticmethod
    def backward(ctx: Any, *above: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        joined, sums = torch.ops.vitral.stack_and_sum(*above)
        return joined, sums.to(ctx.dtype)
