"""Hugging Face transformers: ViT, ViT-MAE, DeiT, DINOv2 (with registers), CLIP's vision tower.

Files carry the published names (`encoder.layer.0.attention.attention.query`), live modules of transformers 5 newer
ones (`layers.0.attention.q_proj`): each table has both, the published one first, since it is the one we write.
"""

from __future__ import annotations

from typing import Any

from vitral.weights.family import Family
from vitral.weights.keymap import Table

OLD, NEW = "encoder.layer.{i}.", "layers.{i}."


def _separate(layer: str, query: str, key: str, value: str) -> tuple[str, str, str]:
    return layer + query, layer + key, layer + value


_EMBEDDINGS: Table = {
    "embeddings.patch_embeddings.projection.{p}": "patches.projection.{p}",
    "embeddings.cls_token": "tokens.class_token",
    "embeddings.position_embeddings": "positions.table",
}
PUBLISHED = ("attention.attention.query.{p}", "attention.attention.key.{p}", "attention.attention.value.{p}")
LIVE = ("attention.q_proj.{p}", "attention.k_proj.{p}", "attention.v_proj.{p}")

VIT: Table = {
    **_EMBEDDINGS,
    OLD + "layernorm_before.{p}": "blocks.{i}.norm1.{p}",
    _separate(OLD, *PUBLISHED): "blocks.{i}.attention.qkv.{p}",
    OLD + "attention.output.dense.{p}": "blocks.{i}.attention.projection.{p}",
    OLD + "layernorm_after.{p}": "blocks.{i}.norm2.{p}",
    OLD + "intermediate.dense.{p}": "blocks.{i}.mlp.expand.{p}",
    OLD + "output.dense.{p}": "blocks.{i}.mlp.contract.{p}",
    NEW + "layernorm_before.{p}": "blocks.{i}.norm1.{p}",
    _separate(NEW, *LIVE): "blocks.{i}.attention.qkv.{p}",
    NEW + "attention.o_proj.{p}": "blocks.{i}.attention.projection.{p}",
    NEW + "layernorm_after.{p}": "blocks.{i}.norm2.{p}",
    NEW + "mlp.fc1.{p}": "blocks.{i}.mlp.expand.{p}",
    NEW + "mlp.fc2.{p}": "blocks.{i}.mlp.contract.{p}",
    "layernorm.{p}": "norm.{p}",
    # The pooler is a tanh layer that only ViTModel's own output passes through; classifiers do not use it.
    "pooler.dense.{p}": None,
    "classifier.{p}": "head.linear.{p}",
    "classifier.{i}.{p}": "head.linear.{p}",
}

MAE: Table = {**VIT, "decoder.{rest}": None}

DEIT: Table = {**VIT, "embeddings.distillation_token": "tokens.registers"}

DEIT_TEACHER: Table = {
    **VIT,
    "embeddings.distillation_token": "tokens.distillation_token",
    "cls_classifier.{p}": "head.linear.{p}",
    "distillation_classifier.{p}": "distillation_head.linear.{p}",
}

DINOV2: Table = {
    **_EMBEDDINGS,
    "embeddings.register_tokens": "tokens.registers",
    "embeddings.mask_token": None,
    OLD + "norm1.{p}": "blocks.{i}.norm1.{p}",
    _separate(OLD, *PUBLISHED): "blocks.{i}.attention.qkv.{p}",
    _separate(OLD, *LIVE): "blocks.{i}.attention.qkv.{p}",
    OLD + "attention.output.dense.{p}": "blocks.{i}.attention.projection.{p}",
    OLD + "attention.o_proj.{p}": "blocks.{i}.attention.projection.{p}",
    OLD + "layer_scale1.lambda1": "blocks.{i}.scale1",
    OLD + "norm2.{p}": "blocks.{i}.norm2.{p}",
    OLD + "mlp.fc1.{p}": "blocks.{i}.mlp.expand.{p}",
    OLD + "mlp.fc2.{p}": "blocks.{i}.mlp.contract.{p}",
    OLD + "mlp.weights_in.{p}": "blocks.{i}.mlp.expand.{p}",
    OLD + "mlp.weights_out.{p}": "blocks.{i}.mlp.contract.{p}",
    (OLD + "mlp.gate_proj.{p}", OLD + "mlp.up_proj.{p}"): "blocks.{i}.mlp.expand.{p}",
    OLD + "mlp.down_proj.{p}": "blocks.{i}.mlp.contract.{p}",
    OLD + "layer_scale2.lambda1": "blocks.{i}.scale2",
    "layernorm.{p}": "norm.{p}",
    "classifier.{p}": "head.linear.{p}",
    "classifier.{i}.{p}": "head.linear.{p}",
}

LAYER = "encoder.layers.{i}."

CLIP: Table = {
    "embeddings.patch_embedding.weight": "patches.projection.weight",
    "embeddings.class_embedding": ("tokens.class_token", "token"),
    "embeddings.position_embedding.weight": ("positions.table", "batched"),
    "embeddings.position_ids": None,
    "pre_layrnorm.{p}": "embedding_norm.{p}",
    LAYER + "layer_norm1.{p}": "blocks.{i}.norm1.{p}",
    _separate(LAYER, "self_attn.q_proj.{p}", "self_attn.k_proj.{p}", "self_attn.v_proj.{p}"): "blocks.{i}.attention.qkv.{p}",
    LAYER + "self_attn.out_proj.{p}": "blocks.{i}.attention.projection.{p}",
    LAYER + "layer_norm2.{p}": "blocks.{i}.norm2.{p}",
    LAYER + "mlp.fc1.{p}": "blocks.{i}.mlp.expand.{p}",
    LAYER + "mlp.fc2.{p}": "blocks.{i}.mlp.contract.{p}",
    "post_layernorm.{p}": "norm.{p}",
    "visual_projection.weight": "head.linear.weight",
    "text_model.{rest}": None,
    "text_projection.weight": None,
    "logit_scale": None,
}

# transformers' CLIPForImageClassification averages the patches and leaves the last norm unused.
_CLIP_CLASSIFIER: Table = {
    **{k: v for k, v in CLIP.items() if k != "post_layernorm.{p}"},
    "post_layernorm.{p}": None,
    "classifier.{p}": "head.linear.{p}",
    "classifier.{i}.{p}": "head.linear.{p}",
}

PATCH = "embeddings.patch_embeddings.projection.weight"
_CLIP_MARKERS = ("embeddings.class_embedding", LAYER + "self_attn.q_proj.weight")
_TEACHERLESS = "the distillation token has no head in this file: kept as a register with a position"
_DEIT_SETTINGS: dict[str, Any] = {"preprocess": "deit", "norm_epsilon": 1e-12}

FAMILIES = (
    Family(
        "hf-deit-teacher",
        "DeiT with distillation head, Hugging Face layout",
        (PATCH, "cls_classifier.weight"),
        DEIT_TEACHER,
        **_DEIT_SETTINGS,
    ),
    Family(
        "hf-deit",
        "DeiT, Hugging Face layout",
        (PATCH, "embeddings.distillation_token"),
        DEIT,
        config={"prefix_positions": "all"},
        note=_TEACHERLESS,
        **_DEIT_SETTINGS,
    ),
    Family("hf-dinov2", "DINOv2, Hugging Face layout", (PATCH, OLD + "layer_scale1.lambda1"), DINOV2, "imagenet"),
    Family("hf-mae", "MAE, Hugging Face layout", (PATCH, "decoder.{rest}"), MAE, "imagenet", norm_epsilon=1e-12),
    Family("hf-vit", "ViT, Hugging Face layout", (PATCH, OLD + "layernorm_before.weight"), VIT, "squash", norm_epsilon=1e-12),
    Family("hf-vit", "ViT, Hugging Face layout", (PATCH, NEW + "layernorm_before.weight"), VIT, "squash", norm_epsilon=1e-12),
    Family(
        "hf-clip-classifier",
        "CLIP with a classifier, Hugging Face layout",
        (*_CLIP_MARKERS, "classifier.weight"),
        _CLIP_CLASSIFIER,
        "clip",
        config={"pool": "mean"},
        norm_epsilon=1e-5,
        activation="quick_gelu",
    ),
    Family(
        "hf-clip",
        "CLIP vision tower, Hugging Face layout",
        (*_CLIP_MARKERS, "pre_layrnorm.weight"),
        CLIP,
        "clip",
        norm_epsilon=1e-5,
        activation="quick_gelu",
    ),
)
