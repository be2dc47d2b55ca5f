"""Grad-CAM (Selvaraju and others, 2017): feature maps weighted by how much each channel moves one class.

cam = (Σ_channels mean over places(∂score/∂map) · map)⁺, on the tokens of a ViT after a block or on a CNN's stage.
"""

from __future__ import annotations

import torch

from vitral.base.errors import UsageError
from vitral.base.numbers import to_double, to_numpy
from vitral.draw.heatmap import Heatmap
from vitral.look.choice import Start, check_index, check_item, find_target, unused_note
from vitral.look.maps import heat
from vitral.look.rerun import ensure_recorded
from vitral.model.tape import Tape


def gradcam(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, block: int | None = None) -> Heatmap:
    """Which places hold the features that speak for `target`; a `start` is noted, not used.

    block: after which block or stage (default: the last one whose patches still reach the head).
    """
    item = check_item(tape, item)
    target = find_target(tape, item, target)
    names = tape.model.map_names()
    blind = tape.config.is_transformer and tape.config.pool == "class"
    if block is None:
        block = len(names) - (2 if blind else 1)
    elif (block := check_index("block", block, len(names))) == len(names) - 1 and blind:
        raise UsageError(
            "after the last block the head reads only the class token, so patches have no gradient there",
            f"use a block from 0 to {len(names) - 2}" if len(names) > 1 else "use integrated_gradients or occlusion",
        )
    name = names[block] if block >= 0 else "embedding"
    used, at = ensure_recorded(tape, item, [name], gradients=True)
    gradient = used.gradient(name, target, at)
    with torch.no_grad():
        maps, slopes = used.model.as_map(used[name])[at], used.model.as_map(gradient)[at]  # (C, h, w)
        cam = (slopes.mean(dim=(1, 2), keepdim=True) * maps).sum(dim=0).clamp(min=0)  # (h, w)
    shown = block if block >= 0 else None
    grid = to_numpy(to_double(cam))
    note = "" if grid.any() else "nothing here raises this class: the map is zero everywhere"
    ignored = unused_note("gradcam", start=start)
    return heat(used, item, grid, "gradcam", note, ignored, at=at, block=shown, target=target, unit="weighted activation")
