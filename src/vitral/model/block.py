"""One block of the encoder: attention, then MLP, each added to the stream of tokens."""

from __future__ import annotations

import torch
from torch import nn

from vitral.config import ModelConfig
from vitral.kernels.layer_norm import stream_and_norm
from vitral.model.attention import Attention
from vitral.model.mlp import MLP
from vitral.model.norm import make_norm
from vitral.model.rotary import Rotation
from vitral.model.tape import Tape


class TransformerBlock(nn.Module):
    """pre: x + f(norm(x)), as in the ViT; post: norm(x + f(x)), as in the original Transformer; res-post: x + norm(f(x)), as in Swin v2."""

    drop_path: torch.Tensor

    def __init__(self, config: ModelConfig, index: int = 0) -> None:
        super().__init__()
        self.name = f"blocks.{index}"
        self.order = config.norm_order
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
        self, tokens: torch.Tensor, rotation: Rotation | None = None, tape: Tape | None = None, read: int | None = None
    ) -> torch.Tensor:
        """`read`: of the last block only so many tokens are read, the first ones; the others need not come out."""
        tokens, seen = self._see(tokens, self.norm1)
        update = self.attention(seen, rotation, tape, read)
        tokens = self._add(tokens if read is None else tokens[:, :read], update, self.norm1, self.scale1)
        if tape is not None:
            tokens = tape.record(self.name + ".middle", tokens)
        tokens, seen = self._see(tokens, self.norm2)
        tokens = self._add(tokens, self.mlp(seen, tape), self.norm2, self.scale2)
        return tokens if tape is None else tape.record(self.name + ".output", tokens)  # (B, T, D)

    def _see(self, tokens: torch.Tensor, norm: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        """The stream, and what attention or MLP sees of it."""
        return stream_and_norm(tokens, norm) if self.order == "pre" else (tokens, tokens)

    def _add(self, tokens: torch.Tensor, update: torch.Tensor, norm: nn.Module, scale: torch.Tensor | None) -> torch.Tensor:
        if self.order == "res-post":
            update = norm(update)
        tokens = tokens + self._branch(update, scale)
        return norm(tokens) if self.order == "post" else tokens

    def _branch(self, update: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
        """Layer scale and stochastic depth on what is added to the stream."""
        if scale is not None:
            update = update * scale.to(update.dtype)
        if self.training and self.drops:
            keep = torch.rand(update.shape[0], 1, 1, device=update.device) >= self.drop_path
            update = update * (keep / (1 - self.drop_path)).to(update.dtype)
        return update


class _ParallelBlock(TransformerBlock):
    """Attention and MLP at once, x + f(norm(x)) + g(norm(x)), with one norm and one factor for both (ViT-22B)."""

    def __init__(self, config: ModelConfig, index: int = 0) -> None:
        super().__init__(config, index)
        del self.norm2, self.scale2

    def forward(
        self, tokens: torch.Tensor, rotation: Rotation | None = None, tape: Tape | None = None, read: int | None = None
    ) -> torch.Tensor:
        tokens, seen = stream_and_norm(tokens, self.norm1)
        update = self.attention(seen, rotation, tape, read)
        if read is not None:
            tokens, seen = tokens[:, :read], seen[:, :read]
        tokens = tokens + self._branch(update, self.scale1)
        if tape is not None:
            tokens = tape.record(self.name + ".middle", tokens)
        tokens = tokens + self._branch(self.mlp(seen, tape), self.scale1)
        return tokens if tape is None else tape.record(self.name + ".output", tokens)  # (B, T, D)


BLOCKS: dict[str, type[TransformerBlock]] = {"sequential": TransformerBlock, "parallel": _ParallelBlock}
