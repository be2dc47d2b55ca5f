"""SigLIP (1, and 2 at fixed sizes) as Hugging Face transformers keeps its vision tower: patches alone, read by a learned query."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vitral.weights.family import Family
from vitral.weights.from_huggingface import CLIP
from vitral.weights.keymap import Table

_TOWER: Table = {
    **{
        foreign: ours for foreign, ours in CLIP.items() if not str(foreign).startswith(("embeddings.patch", "embeddings.class", "pre_layr"))
    },
    "embeddings.patch_embedding.{p}": "patches.projection.{p}",
    "logit_bias": None,
}

SIGLIP: Table = {
    **_TOWER,
    "head.probe": "pool.probe",
    "head.attention.query_{p}": "pool.query.{p}",
    "head.attention.key_value_{p}": "pool.key_value.{p}",
    "head.attention.out_proj.{p}": "pool.projection.{p}",
    "head.layernorm.{p}": "pool.norm.{p}",
    "head.mlp.fc1.{p}": "pool.mlp.expand.{p}",
    "head.mlp.fc2.{p}": "pool.mlp.contract.{p}",
}

# transformers' SiglipForImageClassification averages the patches and leaves the query unused.
_CLASSIFIER: Table = {**_TOWER, "head.{rest}": None, "classifier.{p}": "head.linear.{p}"}


def apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The query's matrix and that of keys and values, which PyTorch's attention stacks."""
    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        before, stacked, kind = name.rpartition("in_proj_")
        if not stacked:
            out[name] = tensor
            continue
        width = tensor.shape[0] // 3
        out[f"{before}query_{kind}"], out[f"{before}key_value_{kind}"] = tensor[:width], tensor[width:]
    return out


LAYER = "encoder.layers.{i}.self_attn.q_proj.weight"
_TANH: dict[str, Any] = {"activation": "gelu_tanh", "prepare": apart}

FAMILIES = (
    Family(
        "hf-siglip-classifier",
        "SigLIP with a classifier, Hugging Face layout",
        ("head.probe", LAYER, "classifier.weight"),
        _CLASSIFIER,
        "squash",
        {"pool": "mean"},
        **_TANH,
    ),
    Family("hf-siglip", "SigLIP, Hugging Face layout", ("head.probe", LAYER, "post_layernorm.weight"), SIGLIP, "squash", **_TANH),
)
