"""The config from shapes: what they tell, what they leave open, and what contradicts."""

from __future__ import annotations

import pytest
import torch

from vitral.base.errors import UsageError, WeightsError
from vitral.build import create, shadow
from vitral.weights.declared import Declared, declare
from vitral.weights.detect import OURS
from vitral.weights.infer import infer_config, rotary_of


def inferred(said=None, **changes):
    """The config of a model without learned numbers, from its shapes alone."""
    config = create("tiny", **changes).config
    return config, *infer_config(shadow(config).state_dict(), OURS, declare("here", said), "x")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"registers": 2, "prefix_positions": "all"},
        {"distillation_token": True, "qkv_bias": False},
        {"layer_scale": 1e-5, "activation": "swiglu"},
        {"qk_norm": True, "channels": 2},
        {"class_token": False, "pool": "mean", "final_norm": False, "pool_norm": True},
        {"head_hidden": 20, "embedding_norm": True, "patch_bias": False, "classes": 7},
    ],
)
def test_every_part_that_leaves_a_shape_is_found(changes) -> None:
    asked, config, _ = inferred({"heads": 3}, **changes)
    assert config == asked


def test_heads_follow_the_usual_width_or_must_be_said() -> None:
    _, config, facts = inferred(width=192, heads=3)
    assert config.heads == 3 and not facts["heads"].declared and facts["heads"].note == "64 numbers per head"
    _, config, facts = inferred(width=1280, heads=16, depth=1, mlp_width=8)
    assert config.heads == 16 and not facts["heads"].declared
    with pytest.raises(UsageError, match="width 48"):
        inferred()
    _, config, facts = inferred({"heads": 4})
    assert config.heads == 4 and facts["heads"].declared and facts["heads"].note == "here"


def test_positions_make_a_grid_or_the_size_must_be_said() -> None:
    wide = {"image_size": (16, 32), "heads": 3}
    with pytest.raises(WeightsError, match="square"):
        inferred({"heads": 3}, **wide)
    _, config, _ = inferred({"heads": 3, "image_size": (16, 32)}, **wide)
    assert config.image_size == (16, 32)


def test_a_missing_part_is_one_line() -> None:
    tensors = shadow(create("tiny").config).state_dict()
    for gone, words in (("blocks.0.mlp.contract.weight", "lacks a part"), ("blocks.0.", r"lacks blocks: it has \[1")):
        rest = {name: tensor for name, tensor in tensors.items() if not name.startswith(gone)}
        with pytest.raises(WeightsError, match=words):
            infer_config(rest, OURS, Declared(), "x")
    with pytest.raises(WeightsError, match="lacks"):
        infer_config({"patches.projection.weight": torch.zeros(3)}, OURS, Declared(), "x")


def test_known_is_kept_when_both_speak() -> None:
    merged = declare("user", {"heads": 4}).or_else(declare("file", {"heads": 3, "activation": "relu"})).or_else(Declared())
    assert merged.config["heads"].value == 4 and merged.config["heads"].note == "user" and merged.config["activation"].note == "file"


# ---- rotary positions leave no tensor: other parts of a file show their kind (tests/parity proves each against timm) ----

TABLE, SCALE, CLASS, REGISTERS = "positions.table", "blocks.0.scale1", "tokens.class_token", "tokens.registers"


@pytest.mark.parametrize(
    ("names", "swiglu", "family", "kind"),
    [
        ([SCALE, CLASS, REGISTERS], False, "timm-dinov3", "dinov3"),
        ([SCALE, CLASS], False, "timm-scaled", "axial"),
        ([SCALE, REGISTERS], False, "timm-eva", "eva"),
        ([TABLE, CLASS], True, "timm-eva", "eva"),
        ([TABLE, CLASS], False, "timm-eva", None),
        ([TABLE, CLASS, "pool.probe"], False, "timm-perception", "perception"),
        ([TABLE, CLASS, "norm.weight"], False, "timm-clip", None),
        ([TABLE, CLASS], False, "timm-clip", "perception"),
        ([TABLE, SCALE, CLASS], False, "timm-scaled", None),
        ([SCALE, CLASS, "blocks.0.attention.relative.table"], False, "timm-beit", None),
        ([CLASS], False, "timm", None),
        ([SCALE, CLASS, REGISTERS], False, "vitral", None),
        ([TABLE, "rotary.speeds"], False, "timm-scaled", "mixed"),
    ],
)
def test_the_parts_give_the_kind_away(names, swiglu, family, kind) -> None:
    found = rotary_of(dict.fromkeys(names, (1,)), swiglu, family)
    assert found.get("rotary") == kind
    if kind:
        assert found["positions"] == ("learned+rotary" if TABLE in names else "rotary")
