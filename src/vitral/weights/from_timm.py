"""timm's ViTs: vision_transformer (AugReg, DeiT, CLIP towers, SigLIP, AIMv2 …), eva (EVA, DINOv3, Perception Encoder, RoPE-ViT) and beit.

The original DeiT, DINO and MAE files descend from its names (see from_dino.py).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from vitral.weights.family import Family
from vitral.weights.keymap import Table

BLOCKS: Table = {
    "blocks.{i}.norm1.{p}": "blocks.{i}.norm1.{p}",
    "blocks.{i}.attn.qkv.{p}": "blocks.{i}.attention.qkv.{p}",
    "blocks.{i}.attn.q_norm.{p}": "blocks.{i}.attention.query_norm.{p}",
    "blocks.{i}.attn.k_norm.{p}": "blocks.{i}.attention.key_norm.{p}",
    "blocks.{i}.attn.norm.{p}": "blocks.{i}.attention.joined_norm.{p}",
    "blocks.{i}.attn.proj.{p}": "blocks.{i}.attention.projection.{p}",
    "blocks.{i}.ls1.gamma": "blocks.{i}.scale1",
    "blocks.{i}.norm2.{p}": "blocks.{i}.norm2.{p}",
    "blocks.{i}.mlp.fc1.{p}": "blocks.{i}.mlp.expand.{p}",
    "blocks.{i}.mlp.norm.{p}": "blocks.{i}.mlp.hidden_norm.{p}",
    "blocks.{i}.mlp.fc2.{p}": "blocks.{i}.mlp.contract.{p}",
    "blocks.{i}.ls2.gamma": "blocks.{i}.scale2",
    # What some blocks keep apart: gate and value of a gated MLP, queries, keys and values, and biases of two of the three.
    ("blocks.{i}.mlp.fc1_g.{p}", "blocks.{i}.mlp.fc1_x.{p}"): "blocks.{i}.mlp.expand.{p}",
    ("blocks.{i}.attn.q_proj.weight", "blocks.{i}.attn.k_proj.weight", "blocks.{i}.attn.v_proj.weight"): "blocks.{i}.attention.qkv.weight",
    ("blocks.{i}.attn.q_proj.bias", "blocks.{i}.attn.v_proj.bias"): ("blocks.{i}.attention.qkv.bias", "without keys"),
    ("blocks.{i}.attn.q_bias", "blocks.{i}.attn.v_bias"): ("blocks.{i}.attention.qkv.bias", "without keys"),
    "blocks.{i}.attn.relative_position_bias_table": "blocks.{i}.attention.relative.table",
    "blocks.{i}.attn.relative_position_index": None,
    "blocks.{i}.attn.rel_pos.mlp.fc1.{p}": "blocks.{i}.attention.relative.expand.{p}",
    "blocks.{i}.attn.rel_pos.mlp.fc2.{p}": "blocks.{i}.attention.relative.contract.{p}",
}

_POOL: Table = {
    "attn_pool.latent": "pool.probe",
    "attn_pool.q.{p}": "pool.query.{p}",
    "attn_pool.kv.{p}": "pool.key_value.{p}",
    "attn_pool.proj.{p}": "pool.projection.{p}",
    "attn_pool.norm.{p}": "pool.norm.{p}",
    "attn_pool.mlp.fc1.{p}": "pool.mlp.expand.{p}",
    "attn_pool.mlp.fc2.{p}": "pool.mlp.contract.{p}",
}

TABLE: Table = {
    "patch_embed.proj.{p}": "patches.projection.{p}",
    "patch_embed.norm.{p}": "patch_norm.{p}",
    "cls_token": "tokens.class_token",
    "reg_token": "tokens.registers",
    "pos_embed": "positions.table",
    "rope.freqs": "rotary.speeds",
    "norm_pre.{p}": "embedding_norm.{p}",
    **BLOCKS,
    # DeiT III and older files write the factors without a module of their own.
    "blocks.{i}.gamma_1": "blocks.{i}.scale1",
    "blocks.{i}.gamma_2": "blocks.{i}.scale2",
    "norm.{p}": "norm.{p}",
    **_POOL,
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

_PARALLEL: Table = {
    **TABLE,
    "blocks.{i}.in_norm.{p}": "blocks.{i}.norm1.{p}",
    "blocks.{i}.q_norm.{p}": "blocks.{i}.attention.query_norm.{p}",
    "blocks.{i}.k_norm.{p}": "blocks.{i}.attention.key_norm.{p}",
    "blocks.{i}.attn_out_proj.{p}": "blocks.{i}.attention.projection.{p}",
    "blocks.{i}.mlp_out_proj.{p}": "blocks.{i}.mlp.contract.{p}",
    "blocks.{i}.mlp_bias": "blocks.{i}.mlp.expand.bias",
    "blocks.{i}.ls.gamma": "blocks.{i}.scale1",
}

# Grouped queries: all three have a bias.
_GROUPED: Table = {
    **{foreign: ours for foreign, ours in TABLE.items() if "q_proj" not in str(foreign)},
    ("blocks.{i}.attn.q_proj.{p}", "blocks.{i}.attn.k_proj.{p}", "blocks.{i}.attn.v_proj.{p}"): "blocks.{i}.attention.qkv.{p}",
}


def _unstack(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A parallel block's one matrix into the MLP's first layer and queries, keys, values."""
    width = tensors[PATCHES].shape[0]
    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        block, stacked, kind = name.rpartition("in_proj.")
        if not stacked:
            out[name] = tensor
            continue
        out[f"{block}mlp.fc1.{kind}"], out[f"{block}attn.qkv.{kind}"] = tensor[: -3 * width], tensor[-3 * width :]
    return out


def _ungroup(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Keys and values that several heads share, once for each; and a factor of one where a branch has none."""
    out = dict(tensors)
    for name, query in tensors.items():
        block, separator, kind = name.rpartition("q_proj.")
        if not separator:
            continue
        per_head = tensors[f"{block}q_norm.weight"].shape[0]
        for part in ("k_proj", "v_proj"):
            shared = tensors[f"{block}{part}.{kind}"]
            heads = shared.unflatten(0, (-1, per_head)).repeat_interleave(query.shape[0] // shared.shape[0], dim=0)
            out[f"{block}{part}.{kind}"] = heads.flatten(0, 1)
        scale = block.replace("attn.", "gamma_")
        if f"{scale}1" in tensors and f"{scale}2" not in tensors:
            out[f"{scale}2"] = torch.ones_like(tensors[f"{scale}1"])
    return out


def each_its_own(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Relative positions that all blocks share, once for each."""
    blocks = {name.split(".")[1] for name in tensors if name.startswith("blocks.")}
    out = {name: tensor for name, tensor in tensors.items() if not name.startswith(SHARED)}
    for name in tensors.keys() - out.keys():
        out |= {f"blocks.{block}.attn.rel_pos.{name.removeprefix(SHARED)}": tensors[name] for block in blocks}
    return out


def _unflex(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A NaFlexViT at its own grid: its linear patches as a kernel, its grid of positions as a row of them."""
    out = {name.removeprefix("embeds."): tensor for name, tensor in tensors.items() if not name.startswith("embeds.pos_embed")}
    kernel = out.pop("proj.weight")  # (D, P·P·C), or the kernel itself
    side = math.isqrt(kernel.shape[1] // 3)
    out[PATCHES] = kernel if kernel.ndim == 4 else kernel.unflatten(1, (side, side, 3)).permute(0, 3, 1, 2)
    if "proj.bias" in out:
        out["patch_embed.proj.bias"] = out.pop("proj.bias")
    if "embeds.pos_embed_y" in tensors:
        table = tensors["embeds.pos_embed_y"][:, :, None] + tensors["embeds.pos_embed_x"][:, None]
    else:
        table = tensors["embeds.pos_embed"]  # (1, h, w, D)
    return out | {"pos_embed": table.flatten(1, 2)}


SHARED = "shared_rel_pos."
PATCHES = "patch_embed.proj.weight"
MARKERS = (PATCHES, "blocks.{i}.attn.qkv.weight")
PROBE, RELATIVE, SCALE = "attn_pool.latent", "blocks.{i}.attn.relative_position_bias_table", "blocks.{i}.gamma_1"
_PERCEPTION: dict[str, Any] = {"pool_over": "tokens", "pool_heads": 8}

# What timm's names tell and no tensor does (a regular expression, in an architecture's or a file's name → fields of the config).
NAMED: dict[str, dict[str, Any]] = {
    r"_rpn_|eva02_enormous": {"norm_order": "res-post"},
    r"_rope_ape_": {"positions": "learned+rotary", "rotary": "axial"},
    r"_lingbot": {"pool": "class"},
    r"test_vit3": {"pool_over": "tokens"},
    r"relpos_.*_240": {"image_size": (240, 240)},
    r"relpos_.*_256": {"image_size": (256, 256)},
}

FAMILIES = (
    Family("deit-distilled", "DeiT with distillation token, timm layout", (*MARKERS, "dist_token"), DISTILLED, "deit"),
    Family("timm-beit", "BEiT, timm layout", (*MARKERS, RELATIVE), TABLE, "half"),
    *(
        Family("timm-relpos", "ViT with relative positions, timm layout", (*MARKERS, marker), TABLE, "half", prepare=each_its_own)
        for marker in ("blocks.{i}.attn.rel_pos.mlp.fc1.weight", SHARED + "mlp.fc1.weight")
    ),
    Family(
        "timm-naflex",
        "NaFlexViT, timm layout",
        ("embeds.proj.weight", "blocks.{i}.attn.qkv.weight"),
        TABLE,
        "half",
        {"prefix_positions": "none"},
        prepare=_unflex,
        note="pictures of one size: the grid that its positions were made for",
    ),
    Family("timm-perception", "Perception Encoder, timm layout", (*MARKERS, PROBE, "norm_pre.weight"), TABLE, "squash", _PERCEPTION, 1e-5),
    Family("timm-map", "ViT with attention pooling (SigLIP), timm layout", (*MARKERS, PROBE), TABLE, "squash"),
    Family("timm-aimv2", "AIMv2, timm layout", (*MARKERS, "patch_embed.norm.weight"), TABLE, "clip", norm_epsilon=1e-5),
    Family("timm-dinov3", "DINOv3, timm layout", (*MARKERS, "cls_token", "reg_token", SCALE), TABLE, "imagenet", {"pool": "mean"}, 1e-5),
    Family(
        "timm-parallel",
        "ViT with parallel blocks, timm layout",
        (PATCHES, "blocks.{i}.attn_out_proj.weight"),
        _PARALLEL,
        "half",
        prepare=_unstack,
    ),
    Family(
        "timm-grouped",
        "Sapiens2, timm layout",
        (PATCHES, "blocks.{i}.attn.k_proj.bias"),
        _GROUPED,
        "imagenet",
        prepare=_ungroup,
        note="keys and values that heads share are written out for each head",
    ),
    Family("timm-eva", "EVA, timm layout", (PATCHES, "blocks.{i}.attn.q_bias"), TABLE, "clip"),
    Family("timm-eva", "EVA-02, timm layout", (PATCHES, "blocks.{i}.attn.q_proj.weight"), TABLE, "clip"),
    Family("timm-beit3", "BEiT v3, timm layout", (*MARKERS, "blocks.{i}.attn.norm.weight"), TABLE, "half", norm_epsilon=1e-5),
    Family("timm-clip", "CLIP vision tower, timm layout", (*MARKERS, "norm_pre.weight"), TABLE, "clip", norm_epsilon=1e-5),
    Family("timm-registers", "ViT with registers, timm layout", (*MARKERS, "reg_token"), TABLE, "deit"),
    Family("timm-scaled", "ViT with layer scale (DINOv2, DeiT III), timm layout", (*MARKERS, "blocks.{i}.ls1.gamma"), TABLE, "deit"),
    Family("timm", "ViT, timm layout", (*MARKERS, "head.{rest}"), TABLE, "half"),
    # Without a head it is most often a self-supervised backbone (DINO, MAE), trained with ImageNet's mean and deviation.
    Family("timm-backbone", "ViT backbone (DINO, MAE), timm layout", MARKERS, TABLE, "imagenet"),
)
