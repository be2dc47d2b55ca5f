"""LeGrad against hooks on the blocks, in plain torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral import look


@pytest.mark.parametrize("changes", [{}, {"class_token": False, "pool": "mean"}])
def test_equals_the_paper(make, images, monkeypatch, changes) -> None:
    model = make(**changes)
    batch = images(model)
    kept: list[torch.Tensor] = []
    softmax = torch.Tensor.softmax

    def keeping(value, dim):
        out = softmax(value, dim=dim)
        kept.append(out)
        return out

    after: list[torch.Tensor] = []
    hooks = [block.register_forward_hook(lambda module, given, out: after.append(out[0])) for block in model.blocks]
    monkeypatch.setattr(torch.Tensor, "softmax", keeping)
    model(batch[1:], tape=vitral.Tape(model, gradients=True))  # the plain formula runs only where weights are used
    monkeypatch.undo()
    for hook in hooks:
        hook.remove()
    total = np.zeros(model.config.tokens)
    for attention, tokens in zip(kept, after, strict=True):
        normed = torch.nn.functional.layer_norm(tokens, tokens.shape[-1:], model.norm.weight, model.norm.bias, 1e-6)
        read = normed[0] if model.config.pool == "class" else normed[model.config.prefix :].mean(dim=0)
        answer = (model.head.linear.weight @ read + model.head.linear.bias)[3]
        slope = torch.autograd.grad(answer, attention, retain_graph=True)[0][0]
        total += np.maximum(slope.numpy(), 0).mean(axis=(0, 1)) / len(kept)
    expected = total[model.config.prefix :].reshape(model.config.grid)
    heat = look.legrad(vitral.watch(model, batch), 1, target=3)
    np.testing.assert_allclose(heat.grid, expected, atol=1e-12)
    assert heat.grid.max() > 0 and heat.target == 3
