"""RISE (Petsiuk, Das and Saenko, 2018): which parts are there when the model is sure? Random masks, averaged by the score they leave.

A mask is a coarse grid of on and off, enlarged smoothly and shifted at random; covered pixels take the mean colour. The map is
Σ score(x ⊙ m) m / Σ m: the mean score while a place is to be seen. Nothing inside the model is read.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from vitral.base.errors import UsageError
from vitral.base.numbers import to_double, to_numpy
from vitral.base.progress import track
from vitral.draw.heatmap import Heatmap
from vitral.look.choice import Start, check_item, find_target, unused_note
from vitral.look.maps import heat, to_patches
from vitral.look.occlusion import grid_of
from vitral.look.rerun import run, score, score_unit, single_image
from vitral.model.tape import Tape

BATCH = 16


def rise(
    tape: Tape,
    item: int = 0,
    target: int | str | None = None,
    start: Start = "class",
    *,
    masks: int = 256,
    cells: int | None = None,
    keep: float = 0.5,
    seed: int = 0,
) -> Heatmap:
    """The mean score of `target` while each patch is to be seen. A `start` is noted, not used.

    masks: how many; fewer are noisier. cells: of a mask's side (default: half of the grid's, at most 7). keep: share that is seen.
    """
    item = check_item(tape, item)
    target = find_target(tape, item, target)
    grid = grid_of(tape.model)
    cells = max(2, min(7, min(grid) // 2)) if cells is None else cells
    if masks < 2 or cells < 2 or not 0 < keep < 1:
        raise UsageError(f"{masks} masks of {cells} × {cells} cells, {keep} kept", "use at least 2 of each, and a share between 0 and 1")
    image = single_image(tape, item)
    seen = _random_masks(masks, cells, keep, (image.shape[1], image.shape[2]), seed)  # (n, H, W)
    weight = np.zeros(image.shape[-2:])
    with torch.no_grad():
        for begin in track(range(0, masks, BATCH), "Covering the picture"):
            some = seen[begin : begin + BATCH]
            left = to_double(score(tape, run(tape, image * some[:, None].to(image)), target))
            weight += to_numpy((left[:, None, None] * to_double(some)).sum(dim=0))
    total = to_numpy(to_double(seen).sum(dim=0))
    values = to_patches(weight, grid) / np.maximum(to_patches(total, grid), 1e-12)
    note, ignored = f"{masks} masks of {cells} × {cells} cells", unused_note("rise", start=start)
    return heat(tape, item, values, "rise", note, ignored, target=target, unit=f"mean {score_unit(tape)} when seen")


def _random_masks(count: int, cells: int, keep: float, size: tuple[int, int], seed: int) -> torch.Tensor:
    """(count, H, W) from 0 to 1."""
    draw = torch.Generator().manual_seed(seed)
    height, width = (-(-side // cells) for side in size)
    coarse = (torch.rand(count, 1, cells + 1, cells + 1, generator=draw) < keep).float()
    large = F.interpolate(coarse, ((cells + 1) * height, (cells + 1) * width), mode="bilinear", align_corners=False)[:, 0]
    tops, lefts = (torch.randint(0, most, (count,), generator=draw).tolist() for most in (height, width))
    return torch.stack([one[top : top + size[0], left : left + size[1]] for one, top, left in zip(large, tops, lefts, strict=True)])
