"""Attention weights of some rows, beside the fused kernel that keeps none: on a GPU in half precision without the scores ever in memory.

The plain twin is softmax(q·kᵀ / √d + bias); all but half precision on a CUDA GPU without gradients runs it. The kernel keeps scores in
fp32, which the twin rounds to the precision of queries and keys.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

in_use = True
"""benchmarks/looking.py switches it off, to measure the twin beside it."""
_MOST = 32768
"""Numbers of a head's keys, with tokens and width filled up to powers of two: one program holds them all, 64 KiB."""


def attention_weights(query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Some rows' queries (B, h, R, d) and all keys (B, h, T, d) → (B, h, R, T)."""
    if in_use and bias is None and has_rows_kernel(query, key):
        # Under autocast softmax gives fp32, and a model that is in half precision itself keeps to it.
        dtype = torch.float32 if torch.is_autocast_enabled("cuda") else query.dtype
        with nullcontext() if query.device.index == torch.cuda.current_device() else torch.cuda.device(query.device):
            return attention_rows(query, key, dtype)
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(-2, -1)
    return (scores if bias is None else scores + bias).softmax(dim=-1)


def has_rows_kernel(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Half precision on a GPU, nobody asks for gradients, and the keys of a head fit."""
    half = query.is_cuda and query.dtype in (torch.bfloat16, torch.float16) and key.dtype == query.dtype
    learning = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    rows_of_numbers = query.stride(-1) == 1 and key.stride(-1) == 1
    return half and not learning and rows_of_numbers and _to_power_of_two(key.shape[-2]) * _to_power_of_two(key.shape[-1]) <= _MOST


def _to_power_of_two(count: int) -> int:
    """To the next power of two, at least 16: what a product of tiles takes."""
    return max(16, 1 << (count - 1).bit_length())


if torch.cuda.is_available():  # only there Triton is loaded
    import triton
    import triton.language as tl

    # Attention weights of some rows as a Triton kernel: a product, a softmax and one write.

    SCORES = 16384
    """Scores that a program holds: rows × keys, filled up to powers of two."""

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
        offset = output + (pair * rows + row[:, None]) * keys + column[None, :]
        tl.store(offset, weights.to(output.dtype.element_ty), (row[:, None] < rows) & (column[None, :] < keys))

    def attention_rows(query: torch.Tensor, key: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """No operator of its own: nothing asks for its gradient, and a watched pass waited 0.8 ms for its dispatch (docs/LOG.md)."""
        batch, heads, rows, width = query.shape
        keys = key.shape[2]
        output = torch.empty(batch, heads, rows, keys, dtype=dtype, device=query.device)
        wide = _to_power_of_two(keys)
        tall = max(16, min(64, SCORES // wide, _to_power_of_two(rows)))
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
            WIDTH=_to_power_of_two(width),
            num_warps=4 if tall * wide <= 4096 else 8,
        )
        return output
