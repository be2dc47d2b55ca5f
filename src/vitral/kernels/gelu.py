"""A linear layer followed by GELU, the widest thing in a ViT: on a GPU in bf16 with fewer passes over memory.

The plain twin is `F.gelu(layer(tokens))`, and everything but bf16 on a CUDA GPU runs it.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import nn

if torch.cuda.is_available():  # Triton is loaded where there is a GPU to run it
    from vitral.kernels import gelu_triton  # noqa: F401


def linear_gelu(tokens: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    """GELU of a linear layer, (B, T, D) → (B, T, M)."""
    if not has_kernel(layer, tokens):
        return F.gelu(layer(tokens))
    weight, bias = layer.weight, layer.bias
    if torch.is_grad_enabled():
        return torch.ops.vitral.bias_gelu(F.linear(tokens, weight), bias)
    # The product's own GELU is the tanh form: off by less than the rounding of its input to bf16, and no pass over memory of its own.
    low = tokens.flatten(0, -2).bfloat16(), weight.bfloat16().t()
    return torch._addmm_activation(bias.bfloat16(), *low, use_gelu=True).unflatten(0, tokens.shape[:-1])


def has_kernel(layer: nn.Module, tokens: torch.Tensor) -> TypeGuard[nn.Linear]:
    """A linear layer with a bias, in bf16 on a GPU."""
    return is_in_bf16(tokens) and type(layer) is nn.Linear and layer.bias is not None


def is_in_bf16(tokens: torch.Tensor) -> bool:
    """On a GPU under bf16 autocast: there a step waits for memory, and bits are computed that are not kept."""
    return tokens.is_cuda and torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
