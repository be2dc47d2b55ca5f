"""The gradients of queries, keys and values side by side, and their sums for the bias, in one pass over memory, as a Triton kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import library

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
    place = tl.program_id(0) * (3 * width) + which * width + column
    tl.store(sums + place, tl.sum(total, axis=0), column < width)


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
