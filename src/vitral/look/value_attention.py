"""Attention weighed by what it carries (Kobayashi and others, 2020): the length of what each patch hands over, not the share it gets.

Through one block token i receives Σ_heads α_ij v_j W_o from token j. Its length is the map: a patch may get much attention and hand over
next to nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from vitral.draw.heatmap import Heatmap
from vitral.look.choice import Start, check_index, check_item, need_transformer, start_row, unused
from vitral.look.maps import heat, precise, to_grid
from vitral.look.rerun import with_values
from vitral.model.tape import Tape


def value_attention(
    tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, block: int = -1, head: int | None = None
) -> Heatmap:
    """How much of each patch reaches a token through one block's attention: all heads together, or one. It knows no class."""
    need_transformer(tape, "value_attention")
    item = check_item(tape, item)
    block = check_index("block", block, tape.config.depth)
    names = [f"blocks.{block}.attention.{part}" for part in ("weights", "value")]
    used, at = with_values(tape, item, names)
    weights, value = (precise(used[name][at].detach()) for name in names)  # (heads, T, T), (heads, T, d)
    model: Any = used.model
    outward = precise(model.blocks[block].attention.projection.weight.detach())  # (D, D)
    heads, _, width = value.shape
    carried = torch.einsum("htd,Dhd->htD", value, outward.view(-1, heads, width))  # (heads, T, D)
    row, note = start_row(used, weights, start)  # (heads, T)
    if head is not None:
        head = check_index("head", head, heads)
        carried, row = carried[head : head + 1], row[head : head + 1]
    lengths = (row[..., None] * carried).sum(dim=0).norm(dim=-1)  # (T,)
    who = "all together" if head is None else head
    ignored = unused("value_attention", target=target)
    return heat(used, item, to_grid(used, lengths), "value_attention", note, ignored, at=at, block=block, head=who, unit="length carried")
