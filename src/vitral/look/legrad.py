"""LeGrad (Bousselham and others, 2025): how sensitive each block's own answer is to its attention, summed over the blocks.

For each block l: s_l = the class's score, read by the head from the tokens after that block; E_l = mean over heads and rows of
(∂s_l/∂A_l)⁺. The map is the mean of E_l over the blocks: only what raises the score counts, and early blocks have their say.
"""

from __future__ import annotations

import torch

from vitral.base.numbers import to_double
from vitral.draw.heatmap import Heatmap
from vitral.look.choice import Start, check_item, find_target, need_transformer, unused_note
from vitral.look.lens import read_out
from vitral.look.maps import heat, to_grid
from vitral.look.rerun import ensure_recorded
from vitral.model.classifier import evaluating
from vitral.model.tape import Tape


def legrad(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class") -> Heatmap:
    """Which patches the blocks would have to look at more for `target` to gain; a `start` is noted, not used."""
    need_transformer(tape, "legrad")
    item = check_item(tape, item)
    target = find_target(tape, item, target)
    depth = tape.config.depth
    names = [f"blocks.{block}.{part}" for block in range(depth) for part in ("attention.weights", "output")]
    used, at = ensure_recorded(tape, item, names, gradients=True)
    total = torch.zeros(used.config.tokens, dtype=torch.float64)  # host
    for block in range(depth):
        with torch.enable_grad(), evaluating(used.model):
            answer = read_out(used.model, used[f"blocks.{block}.output"])[at, target]
            (slope,) = torch.autograd.grad(answer, used[f"blocks.{block}.attention.weights"], retain_graph=True)
        total += to_double(slope[at]).clamp(min=0).mean(dim=(0, 1)) / depth  # (T,)
    return heat(used, item, to_grid(used, total), "legrad", unused_note("legrad", start=start), at=at, target=target, unit="sensitivity")
