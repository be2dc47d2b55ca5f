"""Files of the original DINO, DINOv2 and MAE repositories: timm's names, with their own training parts beside the backbone."""

from __future__ import annotations

from vitral.weights.family import Family
from vitral.weights.from_timm import HEAD_KEYS, MARKERS, TABLE
from vitral.weights.keymap import Table

DINO: Table = {**{k: v for k, v in TABLE.items() if k not in HEAD_KEYS}, "head.mlp.{rest}": None, "head.last_layer.{rest}": None}

DINOV2: Table = {
    **{k: v for k, v in TABLE.items() if k not in ("reg_token", *HEAD_KEYS)},
    "register_tokens": "tokens.registers",
    "mask_token": None,
    "blocks.{i}.mlp.w12.{p}": "blocks.{i}.mlp.expand.{p}",
    "blocks.{i}.mlp.w3.{p}": "blocks.{i}.mlp.contract.{p}",
    "dino_head.{rest}": None,
    "ibot_head.{rest}": None,
}

MAE: Table = {
    **TABLE,
    "mask_token": None,
    "decoder_pos_embed": None,
    "decoder_embed.{p}": None,
    "decoder_blocks.{rest}": None,
    "decoder_norm.{p}": None,
    "decoder_pred.{p}": None,
}

FAMILIES = (
    Family("dinov2", "DINOv2", (*MARKERS, "mask_token", "blocks.{i}.ls1.gamma"), DINOV2, "imagenet"),
    Family("dino", "DINO, with its projection head", (*MARKERS, "head.last_layer.{rest}"), DINO, "imagenet"),
    Family("mae", "MAE, with its decoder", (*MARKERS, "mask_token", "decoder_embed.weight"), MAE, "imagenet"),
)
