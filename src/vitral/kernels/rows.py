"""Attention weights of some rows, beside the fused kernel that keeps none: on a GPU in half precision without the scores ever in memory.

The plain twin is softmax(q·kᵀ / √d + bias); all but half precision on a CUDA GPU without gradients runs it. The kernel keeps scores in
fp32, which the twin rounds to the precision of queries and keys.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch

if torch.cuda.is_available():  # Triton is loaded where there is a GPU to run it
    from vitral.kernels import rows_triton

in_use = True
"""benchmarks/looking.py switches it off, to measure the twin beside it."""
MOST = 32768
"""Numbers of a head's keys, with tokens and width filled up to powers of two: one program holds them all, 64 KiB."""


def attention_weights(query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Some rows' queries (B, h, R, d) and all keys (B, h, T, d) → (B, h, R, T)."""
    if in_use and bias is None and has_rows_kernel(query, key):
        # Under autocast softmax gives fp32, and a model that is in half precision itself keeps to it.
        dtype = torch.float32 if torch.is_autocast_enabled("cuda") else query.dtype
        with nullcontext() if query.device.index == torch.cuda.current_device() else torch.cuda.device(query.device):
            return rows_triton.attention_rows(query, key, dtype)
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(-2, -1)
    return (scores if bias is None else scores + bias).softmax(dim=-1)


def has_rows_kernel(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Half precision on a GPU, nobody asks for gradients, and the keys of a head fit."""
    half = query.is_cuda and query.dtype in (torch.bfloat16, torch.float16) and key.dtype == query.dtype
    learning = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    rows_of_numbers = query.stride(-1) == 1 and key.stride(-1) == 1
    return half and not learning and rows_of_numbers and filled_up(key.shape[-2]) * filled_up(key.shape[-1]) <= MOST


def filled_up(count: int) -> int:
    """To the next power of two, at least 16: what a product of tiles takes."""
    return max(16, 1 << (count - 1).bit_length())
