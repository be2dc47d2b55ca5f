"""Attention against its definition, written out slowly."""

import pytest
import torch

from vitral.build import create
from vitral.model.tape import Tape


def test_equals_the_definition():
    torch.manual_seed(0)
    model = create("tiny").double()
    attention = model.blocks[0].attention
    tokens = torch.randn(2, 7, 48, dtype=torch.float64)
    weight, bias = attention.qkv.weight, attention.qkv.bias
    outputs, weights = [], []
    for head in range(3):
        part = slice(16 * head, 16 * (head + 1))
        query, key, value = (tokens @ weight[48 * i :][part].T + bias[48 * i :][part] for i in range(3))
        scores = torch.stack([query[b] @ key[b].T / 16**0.5 for b in range(2)])
        weights.append(torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True))
        outputs.append(weights[-1] @ value)
    expected = torch.cat(outputs, dim=-1) @ attention.projection.weight.T + attention.projection.bias
    assert torch.allclose(attention(tokens), expected, atol=1e-12)
    for gradients in (False, True):
        tape = Tape(model, gradients=gradients)
        assert torch.allclose(attention(tokens, tape=tape), expected, atol=1e-12)
        assert torch.allclose(tape.attention(0), torch.stack(weights, dim=1), atol=1e-12)


@pytest.mark.parametrize("gradients", [False, True])
def test_attention_dropout_acts_in_training_alone_watched_or_not(gradients):
    torch.manual_seed(0)
    model = create("tiny", attention_dropout=0.5)
    tokens = torch.randn(1, 7, 48)

    def output(training):
        return model.blocks[0].attention.train(training)(tokens, tape=Tape(model, gradients=gradients))

    assert torch.equal(output(False), output(False))
    assert not torch.allclose(output(True), output(False), atol=1e-3)


def test_scaling_after_the_softmax_would_not_be_attention():
    """Report R3's equation 4 divides by √d after the softmax: its rows then sum to 1/√d, and the sharpness is lost."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 9, 16), torch.randn(2, 9, 16)
    right = (query @ key.mT / 16**0.5).softmax(-1)
    wrong = (query @ key.mT).softmax(-1) / 16**0.5
    assert torch.allclose(right.sum(-1), torch.ones(()))
    assert torch.allclose(wrong.sum(-1), torch.full((), 0.25))
    entropy = [-(rows / rows.sum(-1, keepdim=True)).xlogy(rows / rows.sum(-1, keepdim=True)).sum(-1).mean() for rows in (right, wrong)]
    assert entropy[0] > 1.5 * entropy[1]
