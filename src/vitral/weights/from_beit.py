"""BEiT and Data2Vec-Vision as Hugging Face transformers keeps them: relative positions, keys without a bias, a norm on the mean."""

from __future__ import annotations

import re

from torch import Tensor

from vitral.weights.family import Family
from vitral.weights.from_huggingface import LIVE, NEW, OLD, PATCH, PUBLISHED, VIT
from vitral.weights.keymap import Table

BIAS = "relative_position_bias.relative_position_bias_table"
SHARED = re.compile(r"(shared_position_bias|encoder\.relative_position_bias)\.relative_position_bias_table")


def _apart(layer: str, names: tuple[str, str, str]) -> Table:
    query, key, value = names
    weights = tuple(layer + name.replace("{p}", "weight") for name in (query, key, value))
    biases = tuple(layer + name.replace("{p}", "bias") for name in (query, value))
    return {weights: "blocks.{i}.attention.qkv.weight", biases: ("blocks.{i}.attention.qkv.bias", "without keys")}


_BEIT: Table = {
    **{foreign: ours for foreign, ours in VIT.items() if "attention.qkv" not in str(ours)},
    **_apart(OLD, PUBLISHED),
    **_apart(NEW, LIVE),
    "embeddings.mask_token": None,
    OLD + "lambda_1": "blocks.{i}.scale1",
    OLD + "lambda_2": "blocks.{i}.scale2",
    NEW + "lambda_1": "blocks.{i}.scale1",
    NEW + "lambda_2": "blocks.{i}.scale2",
    OLD + "attention.attention." + BIAS: "blocks.{i}.attention.relative.table",
    NEW + BIAS: "blocks.{i}.attention.relative.table",
    "{rest}.relative_position_index": None,
    "pooler.layernorm.{p}": "pool_norm.{p}",
}


def each_its_own(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A bias that all blocks share, once for each."""
    out = {name: tensor for name, tensor in tensors.items() if not SHARED.fullmatch(name)}
    shared = next((tensor for name, tensor in tensors.items() if SHARED.fullmatch(name)), None)
    if shared is not None:
        blocks = {block[1] for name in tensors if (block := re.match(r"(?:encoder\.layer|layers)\.(\d+)\.", name))}
        out |= {f"layers.{block}.{BIAS}": shared for block in blocks}
    return out


FAMILIES = tuple(
    Family("hf-beit", "BEiT, Hugging Face layout", (PATCH, layer + "lambda_1"), _BEIT, "half", norm_epsilon=1e-12, prepare=each_its_own)
    for layer in (OLD, NEW)
)
