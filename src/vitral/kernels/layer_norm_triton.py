"""The gradient of LayerNorm, added to that of the stream it reads, with those of its weight and bias, in one pass, as a Triton kernel.

With x̂ = (x - mean) · scale and g the gradient from above times the weight, that of a row is scale · (g - mean(g) - x̂ · mean(g · x̂)).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import library

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
        place = row * width + column
        spread = tl.load(scale + row)
        normal = (tl.load(tokens + place, inside, 0.0).to(tl.float32) - tl.load(mean + row)) * spread
        normal = tl.where(inside, normal, 0.0)
        slope = tl.load(above + place, inside, 0.0).to(tl.float32)
        for_weight += slope * normal
        for_bias += slope
        slope *= factor
        centre = tl.sum(slope, axis=0) / width
        lean = tl.sum(slope * normal, axis=0) / width
        own = tl.load(beside + place, inside, 0.0).to(tl.float32)
        tl.store(below + place, (own + spread * (slope - centre - normal * lean)).to(below.dtype.element_ty), inside)
    place = tl.program_id(0) * (2 * width) + column
    tl.store(sums + place, for_weight, inside)
    tl.store(sums + place + width, for_bias, inside)


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
