"""EVA and EVA-02 as their own repository saves them (EVA-CLIP's vision towers too): other names for the parts that timm has as well.

Fine-tuned files of the first EVA have timm's names and are read as such; here are those with their pre-training head, and EVA-02's.
"""

from __future__ import annotations

from vitral.weights.family import Family
from vitral.weights.from_timm import PATCHES, TABLE
from vitral.weights.keymap import Table

# Queries and values have biases beside their matrices, keys none.
EVA: Table = {
    **{foreign: ours for foreign, ours in TABLE.items() if "q_bias" not in str(foreign) and "q_proj" not in str(foreign)},
    ("blocks.{i}.attn.q_proj.weight", "blocks.{i}.attn.k_proj.weight", "blocks.{i}.attn.v_proj.weight"): "blocks.{i}.attention.qkv.weight",
    ("blocks.{i}.attn.q_bias", "blocks.{i}.attn.v_bias"): ("blocks.{i}.attention.qkv.bias", "without keys"),
    "blocks.{i}.attn.inner_attn_ln.{p}": "blocks.{i}.attention.joined_norm.{p}",
    "blocks.{i}.mlp.w12.{p}": "blocks.{i}.mlp.expand.{p}",
    ("blocks.{i}.mlp.w1.{p}", "blocks.{i}.mlp.w2.{p}"): "blocks.{i}.mlp.expand.{p}",
    "blocks.{i}.mlp.ffn_ln.{p}": "blocks.{i}.mlp.hidden_norm.{p}",
    "blocks.{i}.mlp.w3.{p}": "blocks.{i}.mlp.contract.{p}",
    # Angles follow from the grid; what hid patches in pre-training and the text tower are no part of a ViT.
    "rope.{rest}": None,
    "blocks.{i}.attn.rope.{rest}": None,
    "blocks.{i}.attn.relative_position_index": None,
    "mask_token": None,
    "lm_head.{rest}": None,
    "text.{rest}": None,
    "logit_scale": None,
    "logit_bias": None,
}

_GATE = "blocks.{i}.mlp.w3.weight"

BIAS = "blocks.{i}.attn.q_bias"

FAMILIES = (
    Family("eva", "EVA-02, original layout", (PATCHES, _GATE, BIAS), EVA, "clip"),
    Family("eva", "EVA with its pre-training head, original layout", (PATCHES, BIAS, "pos_embed", "lm_head.weight"), EVA, "clip"),
)
