"""Activations against their formulas."""

import math

import pytest
import torch

from vitral.build import create
from vitral.model.mlp import ACTIVATIONS

X = torch.linspace(-3, 3, 13, dtype=torch.float64)
FORMULAS = {
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x / (1 + math.exp(-1.702 * x)),
    "relu": lambda x: max(x, 0.0),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_each_number_for_itself(name):
    assert ACTIVATIONS[name](X).tolist() == pytest.approx([FORMULAS[name](x) for x in X.tolist()], abs=1e-12)


def test_swiglu_gates_with_the_first_half():
    """The order in which DINOv2's files keep the two."""
    gate, value = torch.tensor([2.0, -1.0]), torch.tensor([3.0, 5.0])
    assert torch.allclose(ACTIVATIONS["swiglu"](torch.cat([gate, value])), gate * torch.sigmoid(gate) * value)
    assert set(ACTIVATIONS) == {*FORMULAS, "swiglu"}
    assert create("tiny", activation="swiglu").blocks[0].mlp.expand.out_features == 2 * 96
