"""Queries, keys and values of all heads from one product; on a GPU in bf16 their gradients go over memory once less.

The plain twin is the linear layer, cut into three, and everything but bf16 on a CUDA GPU runs it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from vitral.kernels.gelu import has_kernel


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


if torch.cuda.is_available():  # only there Triton is loaded
    import triton
    import triton.language as tl
    from torch import library

    # The gradients of queries, keys and values side by side, and their sums for the bias, in one pass over memory, as a Triton kernel.

    ROWS, TILE, COLUMNS = 32, 4, 256

    @triton.jit
    def _stack(first, second, third, output, sums, rows, width, ROWS: tl.constexpr, TILE: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
        which = tl.program_id(2)
        source = first if which == 0 else (second if which == 1 else third)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        total = tl.zeros((TILE, COLUMNS), tl.float32)
        for start in range(0, ROWS, TILE):
            row = tl.program_id(0).to(tl.int64) * ROWS + start + tl.arange(0, TILE)[:, None]
            inside = (row < rows) & (column[None, :] < width)
            value = tl.load(source + row * width + column[None, :], inside, 0.0)
            tl.store(output + row * (3 * width) + which * width + column[None, :], value, inside)
            total += value.to(tl.float32)
        offset = tl.program_id(0) * (3 * width) + which * width + column
        tl.store(sums + offset, tl.sum(total, axis=0), column < width)

    @library.triton_op("vitral::stack_and_sum", mutates_args=())
    def stack_and_sum(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Three (B, T, h, d) → (B, T, 3, h, d) and the sums (3·h·d,) over B and T in float32."""
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        batch, count, heads, head_width = query.shape
        rows, width = batch * count, heads * head_width
        output = query.new_empty(batch, count, 3, heads, head_width)
        grid = (triton.cdiv(rows, ROWS), triton.cdiv(width, COLUMNS), 3)
        sums = torch.empty(grid[0], 3 * width, dtype=torch.float32, device=query.device)
        library.wrap_triton(_stack)[grid](query, key, value, output, sums, rows, width, ROWS=ROWS, TILE=TILE, COLUMNS=COLUMNS, num_warps=2)
        return output, sums.sum(dim=0)
