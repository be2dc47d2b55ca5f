"""Attention weighted by what it does to one class.

relevance (Chefer, Gur and Wolf, 2021): per block Ā = mean over heads of (∂score/∂A ⊙ A)⁺; R ← R + Ā R, from the identity.
gradient_rollout: the same Ā through attention rollout (identity added, rows normalised, multiplied).
The score is one output's logit: of a class, or of a regression output. Only what raises it counts; `lower=True` asks for
what lowers it.
"""

from __future__ import annotations

import torch

from vitral.draw.heatmap import Heatmap
from vitral.look.choice import Start, check_item, find_target, need_transformer, start_row
from vitral.look.maps import heat, precise, to_grid
from vitral.look.rerun import with_values
from vitral.look.rollout import with_residual
from vitral.model.tape import Tape


def relevance(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, lower: bool = False) -> Heatmap:
    """What the score of `target` (default: the predicted class) owes to each patch, through every block's attention."""
    need_transformer(tape, "relevance")
    item = check_item(tape, item)
    target = find_target(tape, item, target)
    used, at, steps = _steps(tape, item, target, lower)
    total = torch.eye(used.config.tokens, dtype=steps[0].dtype, device=steps[0].device)
    for step in steps:
        total = total + step @ total
    return _finish(used, item, at, total, "relevance", target, start, lower)


def gradient_rollout(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, lower: bool = False) -> Heatmap:
    """Attention rollout in which each weight counts by how much it moves the score of `target`."""
    need_transformer(tape, "gradient rollout")
    item = check_item(tape, item)
    target = find_target(tape, item, target)
    used, at, steps = _steps(tape, item, target, lower)
    total = with_residual(steps[0])
    for step in steps[1:]:
        total = with_residual(step) @ total
    return _finish(used, item, at, total, "gradient_rollout", target, start, lower)


def _steps(tape: Tape, item: int, target: int, lower: bool) -> tuple[Tape, int, list[torch.Tensor]]:
    """Ā (T, T) of every block, from one backward pass."""
    names = [f"blocks.{block}.attention.weights" for block in range(tape.config.depth)]
    used, at = with_values(tape, item, names, gradients=True)
    gradients = used.gradient_of(names, target, at)
    sign = -1.0 if lower else 1.0
    with torch.no_grad():
        weighted = [
            sign * precise(gradient[at]) * precise(used[name][at]) for name, gradient in zip(names, gradients, strict=True)
        ]  # (heads, T, T)
        return used, at, [each.clamp(min=0).mean(dim=0) for each in weighted]


def _finish(tape: Tape, item: int, at: int, total: torch.Tensor, method: str, target: int, start: Start, lower: bool) -> Heatmap:
    row, note = start_row(tape, total, start)
    if start == "class" and tape.config.distillation_token:
        note = "the class token's part; start = distillation shows the other head's"
    lowers = "what lowers the score" if lower else ""
    return heat(tape, item, to_grid(tape, row), method, lowers, note, at=at, target=target, unit="relevance")
