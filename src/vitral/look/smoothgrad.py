"""SmoothGrad (Smilkov and others, 2017): the gradient of the score by the pixels, as the mean over noisy copies of the picture."""

from __future__ import annotations

import numpy as np
import torch

from vitral.base.errors import UsageError
from vitral.draw.heatmap import Heatmap
from vitral.look.choice import Start, check_item, find_target, unused
from vitral.look.maps import heat, to_patches
from vitral.look.occlusion import grid_of
from vitral.look.rerun import alone, run
from vitral.model.tape import Tape

BATCH = 8


def smoothgrad(
    tape: Tape,
    item: int = 0,
    target: int | str | None = None,
    start: Start = "class",
    *,
    copies: int = 16,
    noise: float = 0.15,
    seed: int = 0,
) -> Heatmap:
    """How strongly the score of `target` answers to each patch's pixels: |mean gradient|, summed over the patch. A `start` is not used.

    noise: its standard deviation as a share of the picture's range.
    """
    item = check_item(tape, item)
    target = find_target(tape, item, target)
    if copies < 1 or noise < 0:
        raise UsageError(f"{copies} copies with noise {noise}", "use at least one copy, and noise of 0 or more")
    if torch.is_inference_mode_enabled():
        raise UsageError("gradients cannot be taken inside torch.inference_mode()", "call smoothgrad outside it")
    image = alone(tape, item)  # (C, H, W)
    spread = noise * float(image.max() - image.min())
    draw = torch.Generator().manual_seed(seed)
    total = torch.zeros_like(image)
    for begin in range(0, copies, BATCH):
        count = min(BATCH, copies - begin)
        shaken = image + spread * torch.randn(count, *image.shape, generator=draw).to(image)
        with torch.enable_grad():
            shaken.requires_grad_()
            (slopes,) = torch.autograd.grad(run(tape, shaken)[:, target].sum(), shaken)
        total += slopes.sum(dim=0)
    pixels = (total / copies).abs().sum(dim=0).double().cpu().numpy()
    grid = to_patches(pixels.astype(np.float64), grid_of(tape.model))
    return heat(
        tape, item, grid, "smoothgrad", f"{copies} noisy copies", unused("smoothgrad", start=start), target=target, unit="|gradient|"
    )
