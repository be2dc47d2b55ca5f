"""The parts sum to the logit, and one part is what the logit lacks when it is taken out of the stream."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral import look

VARIANTS = [
    {},
    {"registers": 2, "distillation_token": True, "prefix_positions": "all"},
    {"class_token": False, "pool": "mean"},
    {"pool": "class+mean"},
    {"norm": "rms"},
    {"layer_scale": 0.5},
    {"pool": "mean", "class_token": False, "pool_norm": True, "final_norm": False},
    {"pool": "class+mean", "registers": 1},
    {"pool": "mean", "pool_over": "tokens"},
    {"norm_order": "post"},
    {"norm_order": "post", "norm": "rms", "layer_scale": 0.5, "final_norm": False},
    {"norm_order": "res-post", "layer_scale": 0.5},
    {"norm_order": "res-post", "norm": "rms", "distillation_token": True},
    {"block": "parallel", "layer_scale": 0.5},
    {"sub_norm": "attention+mlp", "activation": "swiglu"},
    {"qk_norm": True, "positions": "rotary", "width": 24, "heads": 2},
    {"positions": "relative"},
    {"embedding_norm": True, "bias": False, "head_bias": False, "qkv_bias": False},
    {"classes": 1},
    {"image_size": (16, 24), "patch_size": (4, 8), "channels": 1},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_parts_sum_to_the_logit(make, images, changes) -> None:
    model = make(**changes)
    tape = vitral.watch(model, images(model))
    for target in (0, 3)[: model.config.classes]:
        found = look.contributions(tape, 1, target)
        assert found.logit == pytest.approx(float(tape.logits[1, target]), abs=1e-12)
        assert found.total == pytest.approx(found.logit, abs=1e-9)
    single = model.float()
    tape = vitral.watch(single, images(model).float())
    found = look.contributions(tape, 0)
    assert found.total == pytest.approx(float(tape.logits[0].max()), abs=1e-4)


@torch.no_grad()
def test_a_part_by_hand(make, images) -> None:
    """The last MLP's part: its class-token row through the last norm with the scale held, times the head's row."""
    model = make()
    kept: dict[str, torch.Tensor] = {}
    hooks = [
        model.blocks[2].mlp.register_forward_hook(lambda module, given, out: kept.update(part=out[1, 0])),
        model.norm.register_forward_hook(lambda module, given, out: kept.update(stream=given[0][1, 0])),
    ]
    tape = vitral.watch(model, images(model))
    for hook in hooks:
        hook.remove()
    spread = (kept["stream"].var(correction=0) + 1e-6).sqrt()
    normed = (kept["part"] - kept["part"].mean()) / spread * model.norm.weight
    assert look.contributions(tape, 1, 2).mlp[2] == pytest.approx(float(model.head.linear.weight[2] @ normed), abs=1e-10)
    assert look.contributions(tape, 1, 2).draw().axes
    assert np.abs(look.contributions(tape).heads).max() > 0


@torch.no_grad()
def test_a_part_before_a_norm_that_comes_after_adding(make, images) -> None:
    """The first attention's bias of a post-norm model: taken out of the stream with every later scale held."""
    model = make(norm_order="post", depth=1)
    kept: dict[str, torch.Tensor] = {}
    hooks = [
        getattr(place, name).register_forward_hook(lambda module, given, out, name=name: kept.update({name: given[0][0, 0]}))
        for place, name in ((model.blocks[0], "norm1"), (model.blocks[0], "norm2"), (model, "norm"))
    ]
    tape = vitral.watch(model, images(model)[:1])
    for hook in hooks:
        hook.remove()
    part = model.blocks[0].attention.projection.bias
    for place, name in ((model.blocks[0], "norm1"), (model.blocks[0], "norm2"), (model, "norm")):
        spread = (kept[name].var(correction=0) + 1e-6).sqrt()
        part = (part - part.mean()) / spread * getattr(place, name).weight
    assert look.contributions(tape, 0, 2).attention_bias[0] == pytest.approx(float(model.head.linear.weight[2] @ part), abs=1e-10)


def test_what_is_no_sum_says_so(make, images) -> None:
    for changes in ({"head_hidden": 8}, {"pool": "attention", "class_token": False}):
        model = make(**changes)
        with pytest.raises(vitral.VitralError, match="not linear"):
            look.contributions(vitral.watch(model, images(model)))
