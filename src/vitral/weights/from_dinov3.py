"""DINOv3: Hugging Face transformers' layout, and that of the original repository (blocks as DINOv2's)."""

from __future__ import annotations

from torch import Tensor

from vitral.weights.family import Family
from vitral.weights.from_dino import DINOV2
from vitral.weights.from_timm import MARKERS
from vitral.weights.keymap import Table

LAYER = "layer.{i}."

_COMMON: Table = {
    "embeddings.patch_embeddings.{p}": "patches.projection.{p}",
    "embeddings.cls_token": "tokens.class_token",
    "embeddings.register_tokens": "tokens.registers",
    "embeddings.mask_token": None,
    LAYER + "norm1.{p}": "blocks.{i}.norm1.{p}",
    (LAYER + "attention.q_proj.weight", LAYER + "attention.k_proj.weight", LAYER + "attention.v_proj.weight"): (
        "blocks.{i}.attention.qkv.weight"
    ),
    (LAYER + "attention.q_proj.bias", LAYER + "attention.v_proj.bias"): ("blocks.{i}.attention.qkv.bias", "without keys"),
    LAYER + "attention.o_proj.{p}": "blocks.{i}.attention.projection.{p}",
    LAYER + "layer_scale1.lambda1": "blocks.{i}.scale1",
    LAYER + "norm2.{p}": "blocks.{i}.norm2.{p}",
    LAYER + "mlp.down_proj.{p}": "blocks.{i}.mlp.contract.{p}",
    LAYER + "layer_scale2.lambda1": "blocks.{i}.scale2",
    "norm.{p}": "norm.{p}",
}
PLAIN: Table = {**_COMMON, LAYER + "mlp.up_proj.{p}": "blocks.{i}.mlp.expand.{p}"}
GATED: Table = {**_COMMON, (LAYER + "mlp.gate_proj.{p}", LAYER + "mlp.up_proj.{p}"): "blocks.{i}.mlp.expand.{p}"}

ORIGINAL: Table = {
    **DINOV2,
    "storage_tokens": "tokens.registers",
    "rope_embed.periods": None,
    "blocks.{i}.attn.qkv.bias_mask": None,
    ("blocks.{i}.mlp.w1.{p}", "blocks.{i}.mlp.w2.{p}"): "blocks.{i}.mlp.expand.{p}",
}


def _without_empty(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """No registers are a tensor of none in transformers."""
    return {name: tensor for name, tensor in tensors.items() if tensor.numel()}


def _without_key_bias(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The original masks the keys' bias away; here it is zero."""
    out = dict(tensors)
    for name in tensors:
        if name.endswith("attn.qkv.bias_mask"):
            bias = tensors[name.removesuffix("_mask")].clone()
            width = bias.shape[0] // 3
            bias[width : 2 * width] = 0
            out[name.removesuffix("_mask")] = bias
    return out


ROTARY = {"positions": "rotary", "rotary": "dinov3"}
FIRST = ("embeddings.patch_embeddings.weight", LAYER + "norm1.weight")

FAMILIES = (
    Family(
        "hf-dinov3",
        "DINOv3 with a gated MLP, Hugging Face layout",
        (*FIRST, LAYER + "mlp.gate_proj.weight"),
        GATED,
        "imagenet",
        ROTARY,
        1e-5,
        prepare=_without_empty,
    ),
    Family("hf-dinov3", "DINOv3, Hugging Face layout", FIRST, PLAIN, "imagenet", ROTARY, 1e-5, prepare=_without_empty),
    Family("dinov3", "DINOv3", (*MARKERS, "storage_tokens"), ORIGINAL, "imagenet", ROTARY, 1e-5, prepare=_without_key_bias),
)
