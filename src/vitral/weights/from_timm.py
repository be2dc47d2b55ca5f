"""timm's ViT (AugReg and others), DeiT with a distillation token, and CLIP towers as timm keeps them.

Names as in timm.models.vision_transformer; the original DeiT, DINO and MAE files descend from them (see from_dino.py).
"""

from __future__ import annotations

from vitral.weights.family import Family
from vitral.weights.keymap import Table

BLOCKS: Table = {
    "blocks.{i}.norm1.{p}": "blocks.{i}.norm1.{p}",
    "blocks.{i}.attn.qkv.{p}": "blocks.{i}.attention.qkv.{p}",
    "blocks.{i}.attn.q_norm.{p}": "blocks.{i}.attention.query_norm.{p}",
    "blocks.{i}.attn.k_norm.{p}": "blocks.{i}.attention.key_norm.{p}",
    "blocks.{i}.attn.proj.{p}": "blocks.{i}.attention.projection.{p}",
    "blocks.{i}.ls1.gamma": "blocks.{i}.scale1",
    "blocks.{i}.norm2.{p}": "blocks.{i}.norm2.{p}",
    "blocks.{i}.mlp.fc1.{p}": "blocks.{i}.mlp.expand.{p}",
    "blocks.{i}.mlp.fc2.{p}": "blocks.{i}.mlp.contract.{p}",
    "blocks.{i}.ls2.gamma": "blocks.{i}.scale2",
}

TABLE: Table = {
    "patch_embed.proj.{p}": "patches.projection.{p}",
    "cls_token": "tokens.class_token",
    "reg_token": "tokens.registers",
    "pos_embed": "positions.table",
    "norm_pre.{p}": "embedding_norm.{p}",
    **BLOCKS,
    # DeiT III and older files write the factors without a module of their own.
    "blocks.{i}.gamma_1": "blocks.{i}.scale1",
    "blocks.{i}.gamma_2": "blocks.{i}.scale2",
    "norm.{p}": "norm.{p}",
    "fc_norm.{p}": "pool_norm.{p}",
    "pre_logits.fc.{p}": "head.hidden.{p}",
    "head.{p}": "head.linear.{p}",
    # What fine-tuning scripts put in its place.
    "head.{i}.{p}": "head.linear.{p}",
    "head.fc.{p}": "head.linear.{p}",
    "fc.{p}": "head.linear.{p}",
    "classifier.{p}": "head.linear.{p}",
}
HEAD_KEYS = ("head.{p}", "head.{i}.{p}", "head.fc.{p}", "fc.{p}", "classifier.{p}")

DISTILLED: Table = {**TABLE, "dist_token": "tokens.distillation_token", "head_dist.{p}": "distillation_head.linear.{p}"}

MARKERS = ("patch_embed.proj.weight", "blocks.{i}.attn.qkv.weight")

FAMILIES = (
    Family("deit-distilled", "DeiT with distillation token, timm layout", (*MARKERS, "dist_token"), DISTILLED, "deit"),
    Family("timm-clip", "CLIP vision tower, timm layout", (*MARKERS, "norm_pre.weight"), TABLE, "clip", norm_epsilon=1e-5),
    Family("timm-registers", "ViT with registers, timm layout", (*MARKERS, "reg_token"), TABLE, "deit"),
    Family("timm-scaled", "ViT with layer scale (DINOv2, DeiT III), timm layout", (*MARKERS, "blocks.{i}.ls1.gamma"), TABLE, "deit"),
    Family("timm", "ViT, timm layout", (*MARKERS, "head.{rest}"), TABLE, "half"),
    # Without a head it is most often a self-supervised backbone (DINO, MAE), trained with ImageNet's mean and deviation.
    Family("timm-backbone", "ViT backbone (DINO, MAE), timm layout", MARKERS, TABLE, "imagenet"),
)
