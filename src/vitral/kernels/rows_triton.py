"""Attention weights of some rows as a Triton kernel: a product, a softmax and one write."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

SCORES = 16384
"""Scores that a program holds: rows × keys, filled up to powers of two."""
LEAST = 16
"""Rows, keys or numbers that a product of tiles takes."""


@triton.jit
def _weights(  # type: ignore[no-untyped-def]
    query,
    key,
    output,
    heads,
    rows,
    keys,
    width,
    query_batch,
    query_head,
    query_row,
    key_batch,
    key_head,
    key_row,
    scale,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    pair = tl.program_id(0).to(tl.int64)  # an image's head; the other axis ends at 65,535
    batch, head = pair // heads, pair % heads
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column, part = tl.arange(0, KEYS), tl.arange(0, WIDTH)
    asked = query + batch * query_batch + head * query_head + row[:, None] * query_row + part[None, :]
    offered = key + batch * key_batch + head * key_head + column[None, :] * key_row + part[:, None]
    q = tl.load(asked, (row[:, None] < rows) & (part[None, :] < width), 0.0)
    k = tl.load(offered, (column[None, :] < keys) & (part[:, None] < width), 0.0)
    scores = tl.dot(q, k) * scale  # (ROWS, KEYS), in units of ln 2
    scores = tl.where(column[None, :] < keys, scores, float("-inf"))
    weights = tl.exp2(scores - tl.max(scores, axis=1, keep_dims=True))
    weights = weights / tl.sum(weights, axis=1, keep_dims=True)
    place = output + (pair * rows + row[:, None]) * keys + column[None, :]
    tl.store(place, weights.to(output.dtype.element_ty), (row[:, None] < rows) & (column[None, :] < keys))


def attention_rows(query: torch.Tensor, key: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """No operator of its own: nothing asks for its gradient, and a watched pass waited 0.8 ms for its dispatch (docs/LOG.md)."""
    batch, heads, rows, width = query.shape
    keys = key.shape[2]
    output = torch.empty(batch, heads, rows, keys, dtype=dtype, device=query.device)
    wide = filled_up(keys)
    tall = max(LEAST, min(64, SCORES // wide, filled_up(rows)))
    grid = (batch * heads, triton.cdiv(rows, tall))
    scale = width**-0.5 * 1.4426950408889634  # 2 to the power of (x / ln 2) is the exponential
    strides = (*query.stride()[:3], *key.stride()[:3])
    launch: Any = _weights[grid]  # with settings of the launch that the kernel does not name
    launch(
        query,
        key,
        output,
        heads,
        rows,
        keys,
        width,
        *strides,
        scale,
        ROWS=tall,
        KEYS=wide,
        WIDTH=filled_up(width),
        num_warps=4 if tall * wide <= 4096 else 8,
    )
    return output


def filled_up(count: int) -> int:
    return max(LEAST, triton.next_power_of_2(count))
