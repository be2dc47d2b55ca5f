"""OpenAI's CLIP (and OpenCLIP files of the same layout): the vision tower `visual.*`; the text tower is dropped by name."""

from __future__ import annotations

from vitral.weights.family import Family
from vitral.weights.keymap import Table

LAYER = "visual.transformer.resblocks.{i}."

TABLE: Table = {
    "visual.conv1.weight": "patches.projection.weight",
    "visual.class_embedding": ("tokens.class_token", "token"),
    "visual.positional_embedding": ("positions.table", "batched"),
    "visual.ln_pre.{p}": "embedding_norm.{p}",
    LAYER + "ln_1.{p}": "blocks.{i}.norm1.{p}",
    LAYER + "attn.in_proj_weight": "blocks.{i}.attention.qkv.weight",
    LAYER + "attn.in_proj_bias": "blocks.{i}.attention.qkv.bias",
    LAYER + "attn.out_proj.{p}": "blocks.{i}.attention.projection.{p}",
    LAYER + "ln_2.{p}": "blocks.{i}.norm2.{p}",
    LAYER + "mlp.c_fc.{p}": "blocks.{i}.mlp.expand.{p}",
    LAYER + "mlp.c_proj.{p}": "blocks.{i}.mlp.contract.{p}",
    "visual.ln_post.{p}": "norm.{p}",
    # The projection into the space shared with text: our "classes" are its dimensions.
    "visual.proj": ("head.linear.weight", "transposed"),
    "transformer.resblocks.{rest}": None,
    "token_embedding.weight": None,
    "positional_embedding": None,
    "ln_final.{p}": None,
    "text_projection": None,
    "logit_scale": None,
    "input_resolution": None,
    "context_length": None,
    "vocab_size": None,
}

FAMILIES = (
    Family(
        "clip",
        "CLIP vision tower, OpenAI layout",
        ("visual.conv1.weight", LAYER + "attn.in_proj_weight"),
        TABLE,
        "clip",
        norm_epsilon=1e-5,
        activation="quick_gelu",
    ),
)
