"""Attention rollout (Abnar and Zuidema, 2020): how much of each patch reaches a token through all blocks.

Per block: heads joined to one matrix A (T, T), weakest weights dropped where asked for, the residual path added as the
identity, rows normalised to sum to 1; then R = Â(L) … Â(2) Â(1). Each row of R says what share of a token's answer comes
from where. Only the running product (B, T, T) is kept, so memory does not grow with depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from vitral.base.errors import UsageError, one_of
from vitral.base.numbers import to_double
from vitral.base.text import percent
from vitral.draw.heatmap import Heatmap
from vitral.look.choice import Start, check_item, need_transformer, start_patch, start_row, unused_note
from vitral.look.maps import heat, to_grid
from vitral.look.rerun import ensure_recorded, weight_names
from vitral.look.watch import as_images, watch
from vitral.model.classifier import Classifier
from vitral.model.tape import ATTENTION, Tape

_MOST_NUMBERS = 2**24
"""Attention weights of one block that may exist at once: more pictures than that are taken in turns."""


class RunningRollout:
    """A reader for a tape: takes each block's attention weights as they pass and keeps only the product so far."""

    def __init__(self, heads: str = "mean", discard: float = 0.0) -> None:
        if heads not in JOIN:
            raise one_of("way to join heads", heads, JOIN)
        if not 0 <= discard < 1:
            raise UsageError(f"discard = {discard} is not a share", "use a number from 0 to below 1, such as 0.9")
        self.heads, self.discard = heads, discard
        self.product: torch.Tensor | None = None

    def __call__(self, weights: torch.Tensor, _: str = "") -> None:
        joined = _drop_weakest(to_double(JOIN[self.heads](weights.detach())), self.discard)  # (B, T, T)
        step = with_residual(joined)
        self.product = step if self.product is None else step @ self.product


def rollout(
    tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, heads: str = "mean", discard: float = 0.0
) -> Heatmap:
    """Rollout of one picture from the attention that a tape kept. It knows no class: a `target` is noted, not used.

    heads: mean, min or max. discard: share of each block's weights, the weakest, that is set to zero.
    """
    need_transformer(tape, "rollout")
    item = check_item(tape, item)
    used, at = ensure_recorded(tape, item, weight_names(tape))
    running = RunningRollout(heads, discard)
    for block in range(tape.config.depth):
        running(used.attention(block)[at : at + 1])
    return _finish(used, item, at, running, start, unused_note("rollout", target=target))


def watch_rollout(model: Classifier, x: Any, start: Start = "class", *, heads: str = "mean", discard: float = 0.0) -> list[Heatmap]:
    """Rollout of every picture in passes that store no attention: for large models and pictures."""
    need_transformer(model, "rollout")
    config = model.config
    images, pictures = as_images(model, x)
    count = max(1, _MOST_NUMBERS // (config.heads * config.tokens**2))
    heats: list[Heatmap] = []
    for begin in range(0, len(images), count):
        running = RunningRollout(heads, discard)
        tape = watch(model, images[begin : begin + count], keep=["logits"], readers={ATTENTION: running})
        tape.pictures = pictures[begin : begin + count] if pictures else None
        heats += [_finish(tape, begin + at, at, running, start) for at in range(tape.logits.shape[0])]
    return heats


def _finish(tape: Tape, item: int, at: int, running: RunningRollout, start: Start, ignored: str = "") -> Heatmap:
    assert running.product is not None
    product = running.product[at if running.product.shape[0] > 1 else 0]
    row, note = start_row(tape, product, start)
    dropped = f"weakest {percent(running.discard, 0)} of weights dropped" if running.discard else ""
    facts = {"head": running.heads, "unit": "share of the answer", "start": start_patch(tape, start)}
    return heat(tape, item, to_grid(tape, row), "rollout", dropped, note, ignored, at=at, **facts)


def with_residual(joined: torch.Tensor) -> torch.Tensor:
    """Add the identity for the residual path, then make each row sum to 1."""
    paths = joined + torch.eye(joined.shape[-1], dtype=joined.dtype, device=joined.device)
    return paths / paths.sum(dim=-1, keepdim=True)


def _drop_weakest(joined: torch.Tensor, share: float) -> torch.Tensor:
    """Set the weakest `share` of each picture's matrix (B, T, T) to zero."""
    count = int(share * joined[0].numel())
    if not count:
        return joined
    flat = joined.flatten(1)
    weakest = flat.topk(count, dim=1, largest=False).indices
    return flat.scatter(1, weakest, 0.0).view_as(joined)


JOIN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda weights: weights.mean(dim=1),
    "min": lambda weights: weights.amin(dim=1),
    "max": lambda weights: weights.amax(dim=1),
}
