"""What a patch hands over, against the block taken apart: the parts sum to the block's own output."""

from __future__ import annotations

import numpy as np
import torch

import vitral
from vitral import look


@torch.no_grad()
def test_the_parts_sum_to_what_attention_gives(any_model, images) -> None:
    batch = images(any_model)
    kept: dict[str, torch.Tensor] = {}
    attention = any_model.blocks[1].attention
    hooks = [
        attention.qkv.register_forward_hook(lambda module, given, out: kept.update(joined=out)),
        attention.projection.register_forward_hook(lambda module, given, out: kept.update(given=given[0], out=out)),
    ]
    tape = vitral.watch(any_model, batch)
    for hook in hooks:
        hook.remove()
    heads, width = any_model.config.heads, any_model.config.width
    value = kept["joined"][1, :, 2 * width :].view(-1, heads, width // heads)  # (T, heads, d)
    weights = tape.attention(1)[1]
    parts = torch.zeros(value.shape[0], value.shape[0], width, dtype=torch.float64)  # (i, j, D)
    for head in range(heads):
        outward = attention.projection.weight[:, head * width // heads : (head + 1) * width // heads]
        parts += weights[head][:, :, None] * (value[:, head] @ outward.T)[None]
    torch.testing.assert_close(parts.sum(dim=1) + attention.projection.bias, kept["out"][1])
    prefix = any_model.config.prefix
    row = parts[0] if any_model.config.pool == "class" else None
    heat = look.value_attention(tape, 1, block=1)
    if row is not None:
        np.testing.assert_allclose(heat.grid.ravel(), row.norm(dim=-1)[prefix:].numpy(), atol=1e-10)
    else:
        np.testing.assert_allclose(heat.grid.ravel(), parts[prefix:].mean(dim=0).norm(dim=-1)[prefix:].numpy(), atol=1e-10)


def test_one_head_and_a_note(make, images) -> None:
    tape = vitral.watch(make(), images(make()))
    assert not np.allclose(look.value_attention(tape, head=0).grid, look.value_attention(tape, head=1).grid)
    assert "does not use target" in look.value_attention(tape, target=1).note
