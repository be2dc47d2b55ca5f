"""One block of the encoder: attention, then MLP, each added to the stream of tokens."""

from __future__ import annotations

import torch
from torch import nn

from vitral.config import ModelConfig
from vitral.model.attention import Attention
from vitral.model.mlp import MLP
from vitral.model.norm import make_norm
from vitral.model.tape import Tape


class TransformerBlock(nn.Module):
    """pre: x + f(norm(x)), as in the ViT; post: norm(x + f(x)), as in the original Transformer."""

    drop_path: torch.Tensor

    def __init__(self, config: ModelConfig, index: int = 0) -> None:
        super().__init__()
        self.name = f"blocks.{index}"
        self.post = config.norm_order == "post"
        self.norm1 = make_norm(config.norm, config.width, config.norm_epsilon)
        self.attention = Attention(config, self.name + ".attention")
        self.norm2 = make_norm(config.norm, config.width, config.norm_epsilon)
        self.mlp = MLP(config, self.name + ".mlp")
        self.drops = config.drop_path > 0
        # As a tensor, not a number: all blocks are then one graph to the compiler.
        rate = config.drop_path * index / max(1, config.depth - 1)
        self.register_buffer("drop_path", torch.tensor(rate, device="cpu"), persistent=False)
        start = config.layer_scale
        self.scale1 = nn.Parameter(torch.full((config.width,), start)) if start is not None else None
        self.scale2 = nn.Parameter(torch.full((config.width,), start)) if start is not None else None

    def forward(
        self, tokens: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor] | None = None, tape: Tape | None = None
    ) -> torch.Tensor:
        if self.post:
            tokens = self.norm1(tokens + self._branch(self.attention(tokens, rotation, tape), self.scale1))
        else:
            tokens = tokens + self._branch(self.attention(self.norm1(tokens), rotation, tape), self.scale1)
        if tape is not None:
            tokens = tape.record(self.name + ".middle", tokens)
        if self.post:
            tokens = self.norm2(tokens + self._branch(self.mlp(tokens, tape), self.scale2))
        else:
            tokens = tokens + self._branch(self.mlp(self.norm2(tokens), tape), self.scale2)
        return tokens if tape is None else tape.record(self.name + ".output", tokens)  # (B, T, D)

    def _branch(self, update: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
        """Layer scale and stochastic depth on what is added to the stream."""
        if scale is not None:
            update = update * scale.to(update.dtype)
        if self.training and self.drops:
            keep = torch.rand(update.shape[0], 1, 1, device=update.device) >= self.drop_path
            update = update * (keep / (1 - self.drop_path)).to(update.dtype)
        return update
