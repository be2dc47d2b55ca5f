from __future__ import annotations

import pytest

from vitral.build import forward_flops
from vitral.model.cost import transformer_cost
from vitral.presets.models import model
from vitral.train.flops import passes

DEPTH = 3
CONFIG = model("tiny", depth=DEPTH, classes=7)


def test_everything_learns_for_three_passes():
    assert passes(CONFIG) == passes(model("resnet18")) == 3


def test_a_head_costs_one_pass_and_its_own_gradient():
    cost = transformer_cost(CONFIG)
    assert passes(CONFIG, "head") * cost.total == pytest.approx(cost.total + cost.head)
    fc = 2 * 512 * 10
    rival = model("resnet18", classes=10)
    assert passes(rival, "head") * forward_flops(rival) == pytest.approx(forward_flops(rival) + fc)


def test_attention_has_gradients_of_its_weights_and_of_what_lies_above_the_first():
    cost = transformer_cost(CONFIG)
    activations = 2 * cost.attention + cost.mlp + cost.head + cost.projections * (1 - 3 / 4 / DEPTH)  # nothing below the first q, k, v
    weights = cost.projections + cost.head
    assert passes(CONFIG, "attention") * cost.total == pytest.approx(cost.total + activations + weights)
