"""Google's `.npz` files (the ViT paper's and AugReg's): JAX kernels, heads kept apart, so their number is known."""

from __future__ import annotations

from typing import Any

from vitral.weights.family import Family
from vitral.weights.keymap import Table

LAYER = "Transformer/encoderblock_{i}/"
ATTENTION = LAYER + "MultiHeadDotProductAttention_1/"


def _counted(foreign: Any) -> Any:
    if isinstance(foreign, tuple):
        return tuple(map(_counted, foreign))
    return foreign.replace("LayerNorm_2", "LayerNorm_1").replace("Attention_1", "Attention_0").replace("MlpBlock_3", "MlpBlock_0")


TABLE: Table = {
    "embedding/kernel": ("patches.projection.weight", "channels last"),
    "embedding/bias": "patches.projection.bias",
    "cls": "tokens.class_token",
    "Transformer/posembed_input/pos_embedding": "positions.table",
    LAYER + "LayerNorm_0/scale": "blocks.{i}.norm1.weight",
    LAYER + "LayerNorm_0/bias": "blocks.{i}.norm1.bias",
    (ATTENTION + "query/kernel", ATTENTION + "key/kernel", ATTENTION + "value/kernel"): ("blocks.{i}.attention.qkv.weight", "heads in"),
    (ATTENTION + "query/bias", ATTENTION + "key/bias", ATTENTION + "value/bias"): ("blocks.{i}.attention.qkv.bias", "heads bias"),
    ATTENTION + "out/kernel": ("blocks.{i}.attention.projection.weight", "heads out"),
    ATTENTION + "out/bias": "blocks.{i}.attention.projection.bias",
    LAYER + "LayerNorm_2/scale": "blocks.{i}.norm2.weight",
    LAYER + "LayerNorm_2/bias": "blocks.{i}.norm2.bias",
    LAYER + "MlpBlock_3/Dense_0/kernel": ("blocks.{i}.mlp.expand.weight", "transposed"),
    LAYER + "MlpBlock_3/Dense_0/bias": "blocks.{i}.mlp.expand.bias",
    LAYER + "MlpBlock_3/Dense_1/kernel": ("blocks.{i}.mlp.contract.weight", "transposed"),
    LAYER + "MlpBlock_3/Dense_1/bias": "blocks.{i}.mlp.contract.bias",
    "Transformer/encoder_norm/scale": "norm.weight",
    "Transformer/encoder_norm/bias": "norm.bias",
    "pre_logits/kernel": ("head.hidden.weight", "transposed"),
    "pre_logits/bias": "head.hidden.bias",
    "head/kernel": ("head.linear.weight", "transposed"),
    "head/bias": "head.linear.bias",
}

# big_vision counts each kind of layer on its own, and gives positions to patches alone.
BIG_VISION: Table = {
    **{_counted(foreign): target for foreign, target in TABLE.items() if foreign != "Transformer/posembed_input/pos_embedding"},
    "pos_embedding": "positions.table",
}

QUERY = ATTENTION + "query/kernel"

FAMILIES = (
    # Google's own code computes the tanh form of GELU; the exact one is how timm and transformers read these files.
    Family("google", "ViT, Google layout", ("embedding/kernel", QUERY), TABLE, "squash"),
    Family("google-big-vision", "ViT, Google's big_vision layout", ("embedding/kernel", _counted(QUERY)), BIG_VISION, "squash"),
)
