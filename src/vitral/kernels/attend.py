"""softmax(q·kᵀ / √d) · v by PyTorch's fused kernel; in bf16 on a CPU by two products, a few images at a time.

There the fused kernel multiplies in bf16 no faster than in fp32, the products do: 1.7 × at 197 tokens, with gradients 1.3 to 5 ×
(docs/LOG.md). The twin is the fused kernel, and everything but bf16 on a CPU runs it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

_MOST = 2**22
"""Scores at a time, 8 MB: with 30 and more the two products were no faster than the fused kernel, which keeps none (docs/LOG.md)."""


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None = None, dropout: float = 0.0
) -> torch.Tensor:
    """Queries (B, h, R, d), keys and values (B, h, T, d) → (B, h, R, d); `bias` (1 or B, h, R, T) is added to the scores."""
    images = images_at_a_time(query, key) if dropout == 0 else 0
    if images == 0:
        return F.scaled_dot_product_attention(query, key, value, bias, dropout_p=dropout)
    if images >= len(query):
        return _two_products(query, key, value, bias)
    parts = [slice(begin, begin + images) for begin in range(0, len(query), images)]
    biases = [bias if bias is None or len(bias) == 1 else bias[part] for part in parts]
    # The scores of all parts would stay in memory for the gradients: each part's are made again there instead, as the fused kernel does.
    return torch.cat(
        [
            checkpoint(_two_products, query[part], key[part], value[part], some, use_reentrant=False, preserve_rng_state=False)
            for part, some in zip(parts, biases, strict=True)
        ]
    )


def images_at_a_time(query: torch.Tensor, key: torch.Tensor) -> int:
    """How many images the two products take at once; 0: the fused kernel takes them all."""
    if query.device.type != "cpu" or not (query.dtype == torch.bfloat16 or _autocasts_to_bf16()):
        return 0
    return _MOST // (query.shape[1] * query.shape[2] * key.shape[2])


def _autocasts_to_bf16() -> bool:
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16


def _two_products(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    shape, scale = query.shape, query.shape[-1] ** -0.5
    query, key, value = (each.bfloat16().flatten(0, 1) for each in (query, key, value))  # (B·h, T, d)
    # Nothing is added to the product where there is no bias: beta is 0.
    added = query.new_empty(1) if bias is None else bias.to(query.dtype).expand(*shape[:-1], -1).flatten(0, 1)  # (B·h, R, T)
    scores = torch.baddbmm(added, query, key.transpose(1, 2), beta=0 if bias is None else 1, alpha=scale)
    return torch.bmm(scores.softmax(dim=-1), value).unflatten(0, shape[:2])  # (B, h, R, d)
