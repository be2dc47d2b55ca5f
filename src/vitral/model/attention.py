"""Multi-head self-attention: every token asks (query), offers (key) and gives (value).

B images, T tokens, D numbers per token, h heads of d = D/h numbers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from vitral.config import ModelConfig
from vitral.kernels.attend import attend
from vitral.kernels.qkv import queries_keys_values
from vitral.kernels.rows import attention_weights
from vitral.model.norm import make_norm
from vitral.model.positions import make_relative
from vitral.model.rotary import Rotation, rotate
from vitral.model.tape import Tape


class Attention(nn.Module):
    """softmax(q·kᵀ / √d) · v per head, heads joined and projected."""

    def __init__(self, config: ModelConfig, name: str) -> None:
        super().__init__()
        self.name = name
        self.heads, self.head_width = config.heads, config.width // config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.qkv_bias)
        self.query_norm = make_norm(config.norm, self.head_width, config.norm_epsilon) if config.qk_norm else nn.Identity()
        self.key_norm = make_norm(config.norm, self.head_width, config.norm_epsilon) if config.qk_norm else nn.Identity()
        self.relative = make_relative(config) if config.is_relative else None
        joined_norm = config.sub_norm == "attention+mlp"
        self.joined_norm = make_norm(config.norm, config.width, config.norm_epsilon) if joined_norm else nn.Identity()
        self.projection = nn.Linear(config.width, config.width, bias=config.bias)
        self.weight_dropout = config.attention_dropout
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, tokens: torch.Tensor, rotation: Rotation | None = None, tape: Tape | None = None, read: int | None = None
    ) -> torch.Tensor:
        """`read`: only so many tokens, the first ones, ask; all are asked."""
        # Taken apart, normalised and turned as they lie in memory; only then are heads and tokens exchanged, which moves nothing.
        query, key, value = queries_keys_values(tokens, self.qkv, self.heads)  # each (B, T, h, d)
        query, key = self.query_norm(query), self.key_norm(key)
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)  # (B, h, T, d)
        bias = self.relative().to(query.dtype) if self.relative is not None else None  # (1, h, T, T)
        if read is not None:
            query, bias = query[:, :, :read], None if bias is None else bias[:, :, :read]
        if tape is None:
            mixed = self._fused(query, key, value, bias)
        else:
            mixed = self._watched(query, key, value, bias, tape)
        joined = self.joined_norm(mixed.transpose(1, 2).flatten(2))
        output = self.dropout(self.projection(joined))  # (B, T, D)
        return output if tape is None else tape.record(self.name + ".output", output)

    def _fused(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        dropout = self.weight_dropout if self.training else 0.0
        return attend(query, key, value, bias, dropout)  # (B, h, T, d)

    def _watched(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None, tape: Tape) -> torch.Tensor:
        """The fused kernel still makes the output unless the weights are edited or differentiated."""
        query = tape.record(self.name + ".query", query)
        key = tape.record(self.name + ".key", key)
        value = tape.record(self.name + ".value", value)
        name = self.name + ".weights"
        if tape.uses(name):
            weights = tape.record(name, attention_weights(query, key, bias))  # (B, h, T, T)
            mixed = F.dropout(weights.to(value.dtype), self.weight_dropout, self.training) @ value
        else:
            mixed = self._fused(query, key, value, bias)
            if tape.wants(name):
                seen = tape.pick(bias) if bias is not None else None
                tape.record(name, attention_weights(tape.pick(query), tape.pick_heads(key), seen))
        return tape.record(self.name + ".heads", mixed)
