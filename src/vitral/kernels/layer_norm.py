"""LayerNorm beside the stream it reads; on a GPU in bf16 both gradients meet in one pass over memory.

The plain twin is `tokens, norm(tokens)`, and everything but bf16 on a CUDA GPU runs it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from vitral.kernels.gelu import is_in_bf16

if torch.cuda.is_available():  # Triton is loaded where there is a GPU to run it
    from vitral.kernels import layer_norm_triton  # noqa: F401

WIDEST = 2048
"""A row is held by one warp; a wider one would not fit its registers."""


def stream_and_norm(tokens: torch.Tensor, norm: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (B, T, D) as they are, to be added to, and normalised."""
    fits = type(norm) is nn.LayerNorm and norm.bias is not None and tokens.shape[-1] <= WIDEST
    if not (fits and torch.is_grad_enabled() and tokens.dtype == torch.bfloat16 and is_in_bf16(tokens)):
        return tokens, norm(tokens)
    return _Both.apply(tokens, norm.weight, norm.bias, norm.eps)  # type: ignore[return-value]


class _Both(torch.autograd.Function):
    """Forwards what PyTorch does, which the compiler fuses with the addition before; backwards one kernel."""

    @staticmethod
    def forward(
        ctx: Any, tokens: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        normal, mean, scale = torch.native_layer_norm(tokens.float(), weight.shape, weight, bias, epsilon)
        ctx.save_for_backward(tokens, weight, mean, scale)
        return tokens.view_as(tokens), normal.to(tokens.dtype)

    @staticmethod
    def backward(ctx: Any, stream: torch.Tensor, normal: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        tokens, sums = torch.ops.vitral.norm_backward(stream, normal, *ctx.saved_tensors)
        return tokens, *sums, None
