"""Google's `.npz` files (the ViT paper's, AugReg's, big_vision's and SigLIP's): JAX kernels, heads kept apart, so their number is known."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

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

# SigLIP: the image tower (img/), read by a learned query; the text tower and the two numbers of its loss stay out.
_MAP = "MAPHead_0/MultiHeadDotProductAttention_0/"
SIGLIP: Table = {
    **BIG_VISION,
    "MAPHead_0/probe": "pool.probe",
    _MAP + "query/kernel": ("pool.query.weight", "heads in"),
    _MAP + "query/bias": ("pool.query.bias", "heads bias"),
    (_MAP + "key/kernel", _MAP + "value/kernel"): ("pool.key_value.weight", "heads in"),
    (_MAP + "key/bias", _MAP + "value/bias"): ("pool.key_value.bias", "heads bias"),
    _MAP + "out/kernel": ("pool.projection.weight", "heads out"),
    _MAP + "out/bias": "pool.projection.bias",
    "MAPHead_0/LayerNorm_0/scale": "pool.norm.weight",
    "MAPHead_0/LayerNorm_0/bias": "pool.norm.bias",
    "MAPHead_0/MlpBlock_0/Dense_0/kernel": ("pool.mlp.expand.weight", "transposed"),
    "MAPHead_0/MlpBlock_0/Dense_0/bias": "pool.mlp.expand.bias",
    "MAPHead_0/MlpBlock_0/Dense_1/kernel": ("pool.mlp.contract.weight", "transposed"),
    "MAPHead_0/MlpBlock_0/Dense_1/bias": "pool.mlp.contract.bias",
    "txt/{rest}": None,
    "t": None,
    "b": None,
}


def _each_block(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Blocks that one loop ran are stacked into one array: one after the other again."""
    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if match := re.fullmatch(r"Transformer/encoderblock/(.+)", name):
            out |= {f"Transformer/encoderblock_{index}/{match[1]}": part for index, part in enumerate(tensor)}
        else:
            out[name] = tensor
    return out


_QUERY = ATTENTION + "query/kernel"
_STACKED = _counted(_QUERY).replace("encoderblock_{i}", "encoderblock")

FAMILIES = (
    # Google's own code computes the tanh form of GELU; the exact one is how timm and transformers read these files.
    Family("google", "ViT, Google layout", ("embedding/kernel", _QUERY), TABLE, "squash"),
    *(
        Family(
            "google-siglip",
            "SigLIP, Google's big_vision layout",
            ("embedding/kernel", "MAPHead_0/probe", query),
            SIGLIP,
            "squash",
            activation="gelu_tanh",
            prepare=_each_block,
        )
        for query in (_counted(_QUERY), _STACKED)
    ),
    *(
        Family(
            "google-big-vision", "ViT, Google's big_vision layout", ("embedding/kernel", query), BIG_VISION, "squash", prepare=_each_block
        )
        for query in (_counted(_QUERY), _STACKED)
    ),
)
