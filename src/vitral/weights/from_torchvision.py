"""torchvision's VisionTransformer, and its ResNets for the rivals."""

from __future__ import annotations

from vitral.weights.family import Family
from vitral.weights.keymap import Table

LAYER = "encoder.layers.encoder_layer_{i}."

TABLE: Table = {
    "conv_proj.{p}": "patches.projection.{p}",
    "class_token": "tokens.class_token",
    "encoder.pos_embedding": "positions.table",
    LAYER + "ln_1.{p}": "blocks.{i}.norm1.{p}",
    LAYER + "self_attention.in_proj_weight": "blocks.{i}.attention.qkv.weight",
    LAYER + "self_attention.in_proj_bias": "blocks.{i}.attention.qkv.bias",
    LAYER + "self_attention.out_proj.{p}": "blocks.{i}.attention.projection.{p}",
    LAYER + "ln_2.{p}": "blocks.{i}.norm2.{p}",
    LAYER + "mlp.0.{p}": "blocks.{i}.mlp.expand.{p}",
    LAYER + "mlp.3.{p}": "blocks.{i}.mlp.contract.{p}",
    # Files from before torchvision 0.13 named the two linear layers.
    LAYER + "mlp.linear_1.{p}": "blocks.{i}.mlp.expand.{p}",
    LAYER + "mlp.linear_2.{p}": "blocks.{i}.mlp.contract.{p}",
    "encoder.ln.{p}": "norm.{p}",
    "heads.pre_logits.{p}": "head.hidden.{p}",
    "heads.head.{p}": "head.linear.{p}",
    # What fine-tuning scripts put in its place.
    "heads.{p}": "head.linear.{p}",
    "heads.{i}.{p}": "head.linear.{p}",
    "heads.head.{i}.{p}": "head.linear.{p}",
}

RESNET: Table = {"{rest}": "network.{rest}"}

FAMILIES = (
    Family("torchvision", "ViT, torchvision layout", ("conv_proj.weight", LAYER + "self_attention.in_proj_weight"), TABLE, "torchvision"),
    Family(
        "torchvision-resnet", "ResNet, torchvision layout", ("conv1.weight", "layer1.0.conv1.weight", "fc.weight"), RESNET, "torchvision"
    ),
)
