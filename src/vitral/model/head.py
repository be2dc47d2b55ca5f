"""From tokens to an answer: read one vector off the tokens, then classify it."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from vitral.config import ModelConfig
from vitral.model.mlp import MLP
from vitral.model.norm import make_norm


def probabilities(logits: torch.Tensor, multi_label: bool = False) -> torch.Tensor:
    """(…, K): shares of one answer, or of each class on its own where a picture may have several labels."""
    return logits.sigmoid() if multi_label else logits.softmax(dim=-1)


class AttentionPool(nn.Module):
    """A learned query looks at all tokens once; its answer is the image's vector."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Parameter(torch.zeros(1, 1, config.width))
        self.key_value = nn.Linear(config.width, 2 * config.width)
        self.projection = nn.Linear(config.width, config.width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, count, width = tokens.shape
        split = (batch, count, 2, self.heads, width // self.heads)
        key, value = self.key_value(tokens).view(split).permute(2, 0, 3, 1, 4).unbind(0)  # (B, h, T, d)
        query = self.query.to(key.dtype).view(1, 1, self.heads, -1).transpose(1, 2).expand(batch, -1, -1, -1)  # (B, h, 1, d)
        return self.projection(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(batch, width))


class _MultiheadAttentionPool(nn.Module):
    """MAP (SigLIP): a learned query looks at the tokens, and an MLP on a norm is added to what it saw."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        inner = dataclasses.replace(config, mlp_width=config.pool_mlp_width or config.mlp_width, sub_norm="none")
        self.heads = config.pool_heads or config.heads
        self.probe = nn.Parameter(torch.zeros(1, 1, config.width))
        self.query = nn.Linear(config.width, config.width)
        self.key_value = nn.Linear(config.width, 2 * config.width)
        self.projection = nn.Linear(config.width, config.width)
        self.norm = make_norm(config.norm, config.width, config.norm_epsilon)
        self.mlp = MLP(inner, "pool.mlp")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        query = self.query(self.probe.to(tokens.dtype).expand(tokens.shape[0], -1, -1)).unflatten(-1, (self.heads, -1))  # (B, 1, h, d)
        key, value = self.key_value(tokens).unflatten(-1, (2, self.heads, -1)).unbind(2)  # (B, T, h, d)
        seen = F.scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))  # (B, h, 1, d)
        pooled = self.projection(seen.flatten(1))
        return pooled + self.mlp(self.norm(pooled))  # (B, D)


class MLPHead(nn.Module):
    """A linear layer on the pooled vector; with `hidden`, a tanh layer before it (the paper's pre-training head)."""

    def __init__(self, width: int, classes: int, hidden: int = 0, bias: bool = True) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.linear = nn.Linear(hidden or width, classes, bias=bias)

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        if self.hidden is not None:
            pooled = self.hidden(pooled).tanh()
        return self.linear(pooled)  # (B, K)


POOLS: dict[str, type[AttentionPool | _MultiheadAttentionPool]] = {"attention": AttentionPool, "map": _MultiheadAttentionPool}
