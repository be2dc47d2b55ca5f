"""The Vision Transformer: patches → tokens → positions → blocks → norm → pool → head.

B images, C channels, H×W pixels, N patches on an h×w grid, T = prefix + N tokens, D numbers per token, K classes.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from vitral.base.errors import UsageError
from vitral.config import ModelConfig
from vitral.model.block import BLOCKS
from vitral.model.classifier import Classifier
from vitral.model.head import POOLS, MLPHead
from vitral.model.initialise import initialise, initialise_head
from vitral.model.norm import make_norm
from vitral.model.patches import PatchEmbedding
from vitral.model.positions import AddPositionalEmbeddings
from vitral.model.rotary import Rotation, make_rotary
from vitral.model.tape import Tape
from vitral.model.tokens import PrependClassToken


class ViT(Classifier):
    """`model(images)`: (B, C, H, W) → logits (B, K). A `stem` makes a feature map of the pixels, which is cut instead (the hybrid)."""

    def __init__(self, config: ModelConfig, stem: nn.Module | None = None, stem_channels: int = 0) -> None:
        super().__init__(config)
        self.stem = stem
        channels = stem_channels or config.channels
        self.patches = PatchEmbedding(channels, config.width, config.patch_size, config.patch_stride, config.patch_bias)
        self.patch_norm = self._norm() if config.patch_norm else nn.Identity()
        self.tokens = PrependClassToken(config.width, config.class_token, config.distillation_token, config.registers)
        self.positions = AddPositionalEmbeddings(config) if config.has_table or config.positions == "sincos" else nn.Identity()
        self.rotary = make_rotary(config) if config.is_rotary else None
        self.dropout = nn.Dropout(config.dropout)
        self.embedding_norm = self._norm() if config.embedding_norm else nn.Identity()
        self.blocks = nn.ModuleList(BLOCKS[config.block](config, index) for index in range(config.depth))
        self.norm = self._norm() if config.final_norm else nn.Identity()
        self.pool = POOLS[config.pool](config) if config.pool in POOLS else None
        self.pool_norm = self._norm() if config.pool_norm else nn.Identity()
        self.head = self._head() if config.classes else nn.Identity()
        self.distillation_head = self._head() if config.classes and config.distillation_token else None
        initialise(self)

    def forward(self, images: torch.Tensor, tape: Tape | None = None, keep_patches: float | None = None) -> torch.Tensor:
        logits = self.answer(*self.summarise(images, tape, keep_patches))
        return logits if tape is None else tape.record("logits", logits)

    def answer(self, pooled: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (B, K) of the head, or the mean of both heads where a distillation token has its own."""
        logits = self.head(pooled)
        return logits if self.distillation_head is None else (logits + self.distillation_head(tokens[:, 1])) / 2

    def logits_of_each_head(self, images: torch.Tensor, keep_patches: float | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Of the head and, where there is a distillation token, of its own."""
        pooled, tokens = self.summarise(images, None, keep_patches)
        return self.head(pooled), self.distillation_head(tokens[:, 1]) if self.distillation_head is not None else None

    def summarise(
        self, images: torch.Tensor, tape: Tape | None = None, keep_patches: float | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The one vector (B, D) that the head reads, and the tokens it was read off."""
        if tape is None and self.config.pool == "class":
            # Patches are not read, so the last block need not make them: 6 % of a ViT of 12 blocks, training or not. In fp32 on a CPU they
            # are made all the same: there a watched pass gives the same answer to the last bit.
            embedded, rotation = self.embed(images, tape, keep_patches)
            read = self.config.prefix if embedded.is_cuda or torch.is_autocast_enabled("cpu") else None
            tokens = self.norm(self.through_blocks(embedded, rotation, tape, read)[:, : self.config.prefix])
        else:
            tokens = self.encode(images, tape, keep_patches)  # (B, T, D)
        pooled = self.pool_norm(self.read(tokens))  # (B, D)
        if tape is not None:
            pooled = tape.record("pooled", pooled)
        return pooled, tokens

    def encode(self, images: torch.Tensor, tape: Tape | None = None, keep_patches: float | None = None) -> torch.Tensor:
        """Images (B, C, H, W) → tokens (B, T, D) after the last norm."""
        tokens = self.norm(self.through_blocks(*self.embed(images, tape, keep_patches), tape))
        return tokens if tape is None else tape.record("tokens", tokens)

    def through_blocks(
        self, tokens: torch.Tensor, rotation: Rotation | None, tape: Tape | None = None, read: int | None = None
    ) -> torch.Tensor:
        """Embedded tokens (B, T, D) after all blocks; where only the first ones are `read` afterwards, these alone."""
        for index, block in enumerate(self.blocks):
            angles = rotation.of_block(index) if rotation is not None else None
            rows = read if index == len(self.blocks) - 1 else None
            if self.config.gradient_checkpointing and self.training and tape is None:
                tokens = checkpoint(block, tokens, angles, None, rows, use_reentrant=False)
            else:
                tokens = block(tokens, angles, tape, rows)
        return tokens

    def embed(
        self, images: torch.Tensor, tape: Tape | None = None, keep_patches: float | None = None
    ) -> tuple[torch.Tensor, Rotation | None]:
        """Images → tokens that know their position, and the angles for rotary attention."""
        self.check_images(images)
        source = images if self.stem is None else self.stem(images)
        patches = self.patch_norm(self.patches(source))  # (B, N, D)
        if tape is not None:
            patches = tape.record("patches", patches)
        tokens = self.embedding_norm(self.dropout(self.positions(self.tokens(patches))))  # (B, T, D)
        rotation = self.rotary() if self.rotary is not None else None
        if keep_patches is not None and keep_patches < 1:
            if self.config.is_relative:
                raise UsageError("relative positions are of whole grids, and keep_patches drops patches", "leave keep_patches out")
            tokens, rotation = drop_patches(tokens, rotation, self.config.prefix, keep_patches)
        return tokens if tape is None else tape.record("embedding", tokens), rotation

    def read(self, tokens: torch.Tensor) -> torch.Tensor:
        """The one vector (B, D) that stands for the image."""
        seen = tokens if self.config.pool_over == "tokens" or self.config.pool == "attention" else tokens[:, self.config.prefix :]
        if self.pool is not None:
            return self.pool(seen)
        if self.config.pool == "mean":
            return seen.mean(dim=1)
        if self.config.pool == "class+mean":
            return torch.cat([tokens[:, 0], tokens[:, self.config.prefix :].mean(dim=1)], dim=1)  # (B, 2D)
        return tokens[:, 0]

    def pooled(self, images: torch.Tensor, blocks: int = 1) -> torch.Tensor:
        if blocks == 1:
            return super().pooled(images)
        if not 1 <= blocks <= self.config.depth:
            raise UsageError(f"the features of {blocks} blocks are asked for, the model has {self.config.depth}", "read 1 to that many")
        names = [f"blocks.{index}.output" for index in range(self.config.depth - blocks, self.config.depth)]
        tape = Tape(self, keep=names)
        self(images, tape=tape)
        return torch.cat([self.pool_norm(self.read(self.norm(tape[name]))) for name in names], dim=1)  # (B, blocks · D)

    def tape_names(self) -> list[str]:
        inner = [f"attention.{part}" for part in ("query", "key", "value", "weights", "heads", "output")]
        inner += ["middle", "mlp.hidden", "mlp.output", "output"]
        blocks = [f"blocks.{index}.{part}" for index in range(self.config.depth) for part in inner]
        return ["patches", "embedding", *blocks, "tokens", "pooled", "logits"]

    def map_names(self) -> list[str]:
        return [f"blocks.{index}.output" for index in range(self.config.depth)]

    def as_map(self, value: torch.Tensor) -> torch.Tensor:
        patches = value[:, self.config.prefix :].transpose(1, 2)  # (B, D, N)
        return patches.unflatten(2, self.config.grid)  # (B, D, h, w)

    def _norm(self) -> nn.Module:
        return make_norm(self.config.norm, self.config.width, self.config.norm_epsilon)

    def _head(self) -> MLPHead:
        width = self.config.width * (2 if self.config.pool == "class+mean" else 1)
        return MLPHead(width, self.config.classes, self.config.head_hidden, self.config.head_bias)

    def _make_head(self) -> None:
        self.head = self._head() if self.config.classes else nn.Identity()
        self.distillation_head = self._head() if self.config.classes and self.config.distillation_token else None
        initialise_head(self)


def drop_patches(tokens: torch.Tensor, rotation: Rotation | None, prefix: int, keep: float) -> tuple[torch.Tensor, Rotation | None]:
    """Keep a random share of each image's patches (and all prefix tokens): cheaper steps early in training."""
    batch, count = tokens.shape[0], tokens.shape[1] - prefix
    remaining = max(1, round(keep * count))
    if keep <= 0:
        raise UsageError(f"keep_patches = {keep} leaves no patch", "use a share above 0")
    chosen = torch.rand(batch, count, device=tokens.device).argsort(dim=1)[:, :remaining].sort(dim=1).values
    return keep_tokens(tokens, rotation, prefix, chosen)


def keep_tokens(tokens: torch.Tensor, rotation: Rotation | None, prefix: int, order: torch.Tensor) -> tuple[torch.Tensor, Rotation | None]:
    """The prefix and the patches whose numbers are in `order` (B, kept)."""
    index = torch.cat([torch.arange(prefix, device=tokens.device).expand(len(tokens), -1), order + prefix], dim=1)  # (B, prefix + kept)
    tokens = tokens.gather(1, index[:, :, None].expand(-1, -1, tokens.shape[2]))
    return tokens, rotation.of_tokens(index) if rotation is not None else None
