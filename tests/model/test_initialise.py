"""How the weights start: each way as its description says."""

import pytest
import torch
from torch import nn

from vitral.build import create


def test_the_papers_start():
    torch.manual_seed(0)
    model = create("tiny", width=96, heads=3, distillation_token=True, registers=2, initialisation="vit")
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            assert module.weight.std().item() == pytest.approx(0.02, rel=0.1), name
            assert bool((module.bias == 0).all()), name
    patches = model.patches.projection
    assert patches.weight.std().item() == pytest.approx((3 * 4 * 4) ** -0.5, rel=0.15), "by their fan-in, cut at two deviations"
    assert bool((patches.bias == 0).all())
    for value in (*model.tokens.parameters(), model.positions.table):
        assert value.std().item() == pytest.approx(0.02, rel=0.2)


def test_the_reports_start_with_standard_gaussian_tokens_and_positions():
    torch.manual_seed(0)
    model = create("tiny", initialisation="torch")
    assert model.positions.table.std().item() == pytest.approx(1, rel=0.1)
    assert model.tokens.class_token.std().item() == pytest.approx(1, rel=0.3)


def test_branches_that_start_as_nothing_leave_the_stream():
    torch.manual_seed(0)
    model = create("tiny", initialisation="zero").eval()
    tokens = torch.randn(2, 65, 48)
    for block in model.blocks:
        assert torch.equal(block(tokens), tokens)
        assert bool((block.attention(tokens) == 0).all()), "attention too, not only the MLP"
