"""Integrated gradients (Sundararajan, Taly and Yan, 2017): the score's change from a blank picture, shared out over the pixels.

attribution = (x − x₀) · ∫₀¹ ∂score/∂x at x₀ + a (x − x₀) da. Completeness: the attributions sum to score(x) − score(x₀);
the gap is measured, more steps are taken until it is small, and what remains is said in the note.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch

from vitral.base.errors import UsageError, one_of
from vitral.base.numbers import to_double, to_numpy
from vitral.base.text import percent, signed
from vitral.data.images.preprocess import Preprocess
from vitral.draw.heatmap import Heatmap
from vitral.look.choice import Start, check_item, find_target, unused_note
from vitral.look.maps import heat, to_patches
from vitral.look.rerun import run, single_image
from vitral.model.tape import Tape

_MOST_STEPS = 512
BATCH = 16


class _Attribution(NamedTuple):
    """Per pixel and channel, with the two sides of the completeness equation."""

    values: torch.Tensor
    """(C, H, W)"""
    total: float
    """Sum of the values."""
    change: float
    """score(x) − score(x₀): what the sum should be."""
    steps: int

    @property
    def gap(self) -> float:
        """|total − change| as a share of |change|."""
        return abs(self.total - self.change) / max(abs(self.change), 1e-12)


def integrated_gradients(
    tape: Tape,
    item: int = 0,
    target: int | str | None = None,
    start: Start = "class",
    *,
    baseline: str = "mean",
    steps: int = 32,
    tolerance: float = 0.05,
    per: str | None = None,
) -> Heatmap:
    """What each patch (or pixel, `per="pixel"`) adds to the score of `target`; signed. A `start` is noted, not used.

    baseline: mean (the colour that becomes 0 after preprocessing), black, white. steps are doubled until the gap is below tolerance.
    """
    item = check_item(tape, item)
    target = find_target(tape, item, target)
    if per not in (None, "patch", "pixel"):
        raise one_of("resolution", str(per), ("patch", "pixel"))
    attribution = attribute(tape, item, target, baseline=baseline, steps=steps, tolerance=tolerance)
    pixels = to_numpy(to_double(attribution.values.sum(dim=0)))  # (H, W)
    per = per or ("patch" if tape.config.is_transformer else "pixel")
    grid = to_patches(pixels, tape.grid) if per == "patch" else pixels
    gap = f"gap {percent(attribution.gap)}, {attribution.steps} steps"
    note = f"sums to {signed(attribution.total)} of {signed(attribution.change)} from a {baseline} picture ({gap})"
    ignored = unused_note("integrated_gradients", start=start)
    return heat(tape, item, grid, "integrated_gradients", note, ignored, target=target, unit="change of the logit", signed=True)


def attribute(tape: Tape, item: int, target: int, *, baseline: str = "mean", steps: int = 32, tolerance: float = 0.05) -> _Attribution:
    """The numbers, by Clenshaw and Curtis's rule: it needs far fewer steps than an even walk, and twice the steps keep those already taken.

    They are points t of the path a = t²: a score changes most near the blank picture, where contrast is low, and there they lie closer.
    """
    if not 1 <= steps <= _MOST_STEPS:
        raise UsageError(f"steps = {steps}", f"use 1 to {_MOST_STEPS}")
    if torch.is_inference_mode_enabled():
        raise UsageError("gradients cannot be taken inside torch.inference_mode()", "call integrated_gradients outside it")
    image = single_image(tape, item)  # (C, H, W)
    blank = _blank(tape, image, baseline)
    with torch.no_grad():
        change = float(tape.logits[item, target] - run(tape, blank[None])[0, target])
    slopes: dict[Fraction, torch.Tensor] = {}
    while True:
        weights = _path_weights(steps)
        slopes |= _slopes(tape, image, blank, target, [point for point in weights if point not in slopes])
        values = (image - blank) * sum(weight * slopes[point] for point, weight in weights.items())
        attribution = _Attribution(values, float(to_double(values).sum()), change, steps)
        if attribution.gap <= tolerance or steps * 2 > _MOST_STEPS:
            return attribution
        steps *= 2


def _path_weights(steps: int) -> dict[Fraction, float]:
    """Place k / steps of the rule → the weight of the slope there; the place where t = 0 has none.

    t = (1 − cos(π k / steps)) / 2, a = t², da = 2 t dt. Weights: the integral of the polynomial through all the points.
    """
    angles = np.pi * np.arange(steps + 1) / steps
    even = np.arange(1, steps // 2 + 1)
    halved = np.where(2 * even == steps, 1.0, 2.0) / (4 * even**2 - 1)  # the highest cosine of an even rule counts once
    weights = (1 - np.cos(2 * np.outer(angles, even)) @ halved) / steps
    weights[[0, -1]] /= 2
    return {Fraction(k, steps): float(2 * weights[k] * _share_at(k / steps) ** 0.5) for k in range(1, steps + 1)}


def _share_at(point: float) -> float:
    """How far along the path from the blank picture a place of the rule lies."""
    return float((1 - np.cos(np.pi * point)) / 2) ** 2


def _slopes(tape: Tape, image: torch.Tensor, blank: torch.Tensor, target: int, points: list[Fraction]) -> dict[Fraction, torch.Tensor]:
    """The gradient (C, H, W) of the score at these places of the path."""
    gradients: dict[Fraction, torch.Tensor] = {}
    for begin in range(0, len(points), BATCH):
        some = points[begin : begin + BATCH]
        shares = torch.tensor([_share_at(float(point)) for point in some], dtype=image.dtype, device=image.device).view(-1, 1, 1, 1)
        with torch.enable_grad():
            path = (blank + shares * (image - blank)).requires_grad_()
            (slopes,) = torch.autograd.grad(run(tape, path)[:, target].sum(), path)
        gradients |= zip(some, slopes, strict=True)
    return gradients


def _blank(tape: Tape, image: torch.Tensor, baseline: str) -> torch.Tensor:
    if baseline == "mean":
        return torch.zeros_like(image)
    if baseline not in _BASELINES:
        raise one_of("baseline", baseline, ("mean", *_BASELINES))
    pixels = torch.full(image.shape, _BASELINES[baseline], dtype=torch.uint8, device=image.device)
    return Preprocess.of(tape.model).normalise(pixels).to(image.dtype)


_BASELINES = {"black": 0, "white": 255}
