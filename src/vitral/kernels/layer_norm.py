"""LayerNorm beside the stream it reads; on a GPU in bf16 both gradients meet in one pass over memory.

The plain twin is `tokens, norm(tokens)`, and everything but bf16 on a CUDA GPU runs it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from vitral.kernels.gelu import is_in_bf16

_WIDEST = 2048
"""A row is held by one warp; a wider one would not fit its registers."""


def stream_and_norm(tokens: torch.Tensor, norm: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (B, T, D) as they are, to be added to, and normalised."""
    fits = type(norm) is nn.LayerNorm and norm.bias is not None and tokens.shape[-1] <= _WIDEST
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


if torch.cuda.is_available():  # only there Triton is loaded
    import triton
    import triton.language as tl
    from torch import library

    # The gradient of LayerNorm, added to that of the stream it reads, with those of its weight and bias, in one pass, as a Triton kernel.
    #
    # With x̂ = (x - mean) · scale and g the gradient from above times the weight, that of a row is scale · (g - mean(g) - x̂ · mean(g · x̂)).

    ROWS = 16
    """So many rows, one after the other, are one program's: their sums for weight and bias stay in its registers."""

    @triton.jit
    def _backward(  # type: ignore[no-untyped-def]
        beside, above, tokens, weight, mean, scale, below, sums, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
    ):
        # `beside` is the gradient of the stream: a launcher of the compiler has an argument of that name already.
        column = tl.arange(0, COLUMNS)
        inside = column < width
        factor = tl.load(weight + column, inside, 0.0).to(tl.float32)
        for_weight = tl.zeros((COLUMNS,), tl.float32)
        for_bias = tl.zeros((COLUMNS,), tl.float32)
        first = tl.program_id(0).to(tl.int64) * ROWS
        for row in range(first, tl.minimum(first + ROWS, rows)):
            offset = row * width + column
            spread = tl.load(scale + row)
            normal = (tl.load(tokens + offset, inside, 0.0).to(tl.float32) - tl.load(mean + row)) * spread
            normal = tl.where(inside, normal, 0.0)
            slope = tl.load(above + offset, inside, 0.0).to(tl.float32)
            for_weight += slope * normal
            for_bias += slope
            slope *= factor
            centre = tl.sum(slope, axis=0) / width
            lean = tl.sum(slope * normal, axis=0) / width
            own = tl.load(beside + offset, inside, 0.0).to(tl.float32)
            tl.store(below + offset, (own + spread * (slope - centre - normal * lean)).to(below.dtype.element_ty), inside)
        offset = tl.program_id(0) * (2 * width) + column
        tl.store(sums + offset, for_weight, inside)
        tl.store(sums + offset + width, for_bias, inside)

    @library.triton_op("vitral::norm_backward", mutates_args=())
    def norm_backward(
        stream: torch.Tensor, above: torch.Tensor, tokens: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of the stream (B, T, D) and of its norm → of the tokens, and (2, D) of weight and bias."""
        stream, above, tokens = stream.contiguous(), above.contiguous(), tokens.contiguous()
        width, below = tokens.shape[-1], torch.empty_like(tokens)
        rows = tokens.numel() // width
        programs = triton.cdiv(rows, ROWS)
        sums = torch.empty(programs, 2, width, dtype=torch.float32, device=tokens.device)
        columns = triton.next_power_of_2(width)
        library.wrap_triton(_backward)[(programs,)](
            stream, above, tokens, weight, mean, scale, below, sums, rows, width, ROWS=ROWS, COLUMNS=columns, num_warps=1
        )
        return below, sums.sum(dim=0).to(weight.dtype)
