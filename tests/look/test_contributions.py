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
]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_parts_sum_to_the_logit(make, images, changes) -> None:
    model = make(**changes)
    tape = vitral.watch(model, images(model))
    for target in (0, 3):
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


def test_what_is_no_sum_says_so(make, images) -> None:
    for changes, words in (({"norm_order": "post"}, "normalise after adding"), ({"head_hidden": 8}, "not linear")):
        model = make(**changes)
        with pytest.raises(vitral.VitralError, match=words):
            look.contributions(vitral.watch(model, images(model)))
