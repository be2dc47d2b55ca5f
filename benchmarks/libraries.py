"""The same ViT as other libraries build it, and how their users get attention out of it: what peers.py times.

It imports little of Vitral, because the start of a library is timed with this file.
No library is required: peers.py names one that is not installed, or cannot build a size, as absent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitral.config import ModelConfig

Capture = Callable[[Tensor], list[Tensor]]
"""Images → the attention weights (B, heads, T, T) of every block."""


@dataclass(frozen=True)
class Peer:
    name: str
    package: str
    """What is imported."""
    build: Callable[[ModelConfig], nn.Module]
    """Images → logits, with random weights."""
    capture: Callable[[ModelConfig, torch.device], Capture] | None
    """As its documentation, or for want of one its users, get attention; None: not without rewriting its model."""


def plain(config: ModelConfig) -> bool:
    """Whether it is the ViT of the paper, which all of them have."""
    fields = (
        config.family,
        config.pool,
        config.positions,
        config.norm,
        config.norm_order,
        config.activation,
        config.registers,
        config.stride,
    )
    return fields == ("vit", "class", "learned", "layer", "pre", "gelu", 0, None) and not config.distillation_token and not config.qk_norm


def build_timm(config: ModelConfig) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=config.image_size,
        patch_size=config.patch_size,  # type: ignore[arg-type]
        in_chans=config.channels,
        num_classes=config.classes,
        embed_dim=config.width,
        depth=config.depth,
        num_heads=config.heads,
        mlp_ratio=config.mlp_width / config.width,
    )


def capture_timm(config: ModelConfig, device: torch.device) -> Capture:
    """Its fused kernel switched off, and a hook on what is dropped out of the weights."""
    model: Any = build_timm(config).to(device).eval()
    recorded: list[Tensor] = []
    for block in model.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda *arguments: recorded.append(arguments[-1]))

    def capture(images: Tensor) -> list[Tensor]:
        recorded.clear()
        model(images)
        return list(recorded)

    return capture


def build_torchvision(config: ModelConfig) -> nn.Module:
    from torchvision.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        image_size=config.image_size[0],
        patch_size=config.patch_size[0],
        num_layers=config.depth,
        num_heads=config.heads,
        hidden_dim=config.width,
        mlp_dim=config.mlp_width,
        num_classes=config.classes,
    )


class _Logits(nn.Module):
    """A model of transformers that gives logits alone."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images).logits


def build_transformers(config: ModelConfig, attention: str = "sdpa") -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": config.width, "num_hidden_layers": config.depth, "num_attention_heads": config.heads}
    pixels = {"image_size": config.image_size[0], "patch_size": config.patch_size[0], "num_channels": config.channels}
    rest = {"intermediate_size": config.mlp_width, "num_labels": config.classes, "attn_implementation": attention}
    settings = ViTConfig(**sizes, **pixels, **rest)  # type: ignore[arg-type]
    return _Logits(ViTForImageClassification(settings))


def capture_transformers(config: ModelConfig, device: torch.device) -> Capture:
    model: Any = build_transformers(config, "eager").to(device).eval()
    return lambda images: list(model.model(images, output_attentions=True).attentions)


def build_vit_pytorch(config: ModelConfig) -> nn.Module:
    from vit_pytorch import ViT

    sizes = {"dim": config.width, "depth": config.depth, "heads": config.heads, "mlp_dim": config.mlp_width}
    pixels = {"image_size": config.image_size, "patch_size": config.patch_size, "channels": config.channels}
    return ViT(**sizes, **pixels, num_classes=config.classes, dim_head=config.width // config.heads)


def capture_vit_pytorch(config: ModelConfig, device: torch.device) -> Capture:
    from vit_pytorch.recorder import Recorder

    recorder = Recorder(build_vit_pytorch(config).to(device).eval())
    return lambda images: list(recorder(images)[1].unbind(1))


PEERS = (
    Peer("timm", "timm", build_timm, capture_timm),
    Peer("torchvision", "torchvision", build_torchvision, None),
    Peer("transformers", "transformers", build_transformers, capture_transformers),
    Peer("vit-pytorch", "vit_pytorch", build_vit_pytorch, capture_vit_pytorch),
)


def roll_out(maps: list[Tensor]) -> Tensor:
    """Rollout (Abnar and Zuidema, 2020) as users of those libraries write it: (B, T, T)."""
    joined = torch.eye(maps[0].shape[-1], device=maps[0].device)
    for weights in maps:
        mixed = weights.mean(dim=1) + torch.eye(weights.shape[-1], device=weights.device)
        joined = mixed / mixed.sum(dim=-1, keepdim=True) @ joined
    return joined
