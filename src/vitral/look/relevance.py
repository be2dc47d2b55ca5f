"""Attention weighted by what it does to one class.

relevance (Chefer, Gur and Wolf, 2021): per block Ā = mean over heads of (∂score/∂A ⊙ A)⁺; R ← R + Ā R, from the identity,
which is taken off at the end: that every patch owes itself to itself says nothing of the picture, and where the head reads the mean of the
patches it would outweigh all that does.
gradient_rollout: the same Ā through attention rollout (identity added, rows normalised, multiplied).
The score is one output's logit: of a class, or of a regression output. Only what raises it counts; `lower=True` asks for
what lowers it.
"""

from __future__ import annotations

import torch

from vitral.base.numbers import to_double
from vitral.draw.heatmap import Heatmap
from vitral.look.choice import Start, check_item, find_target, need_transformer, start_patch, start_row
from vitral.look.maps import heat, to_grid
from vitral.look.rerun import ensure_recorded, weight_names
from vitral.look.rollout import with_residual
from vitral.model.tape import Tape


def relevance(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, lower: bool = False) -> Heatmap:
    """What the score of `target` (default: the predicted class) owes to each patch, through every block's attention."""
    return _collected(tape, item, target, start, lower, "relevance")


def gradient_rollout(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, lower: bool = False) -> Heatmap:
    """Attention rollout in which each weight counts by how much it moves the score of `target`."""
    return _collected(tape, item, target, start, lower, "gradient_rollout")


def _collected(tape: Tape, item: int, target: int | str | None, start: Start, lower: bool, method: str) -> Heatmap:
    need_transformer(tape, method)
    item = check_item(tape, item)
    target = find_target(tape, item, target)
    used, at, steps = _steps(tape, item, target, lower)
    total = torch.eye(used.config.tokens, dtype=steps[0].dtype, device=steps[0].device)
    for step in steps:
        total = total + step @ total if method == "relevance" else with_residual(step) @ total
    if method == "relevance":
        total = total - torch.eye(used.config.tokens, dtype=total.dtype, device=total.device)
    row, note = start_row(used, total, start)
    lowers = "what lowers the score" if lower else ""
    facts = {"target": target, "unit": "relevance", "start": start_patch(used, start)}
    return heat(used, item, to_grid(used, row), method, lowers, note, at=at, **facts)


def _steps(tape: Tape, item: int, target: int, lower: bool) -> tuple[Tape, int, list[torch.Tensor]]:
    """Ā (T, T) of every block, from one backward pass."""
    names = weight_names(tape)
    used, at = ensure_recorded(tape, item, names, gradients=True)
    gradients = used.gradient_of(names, target, at)
    sign = -1.0 if lower else 1.0
    with torch.no_grad():
        weighted = [
            sign * to_double(gradient[at]) * to_double(used[name][at]) for name, gradient in zip(names, gradients, strict=True)
        ]  # (heads, T, T)
        return used, at, [each.clamp(min=0).mean(dim=0) for each in weighted]
