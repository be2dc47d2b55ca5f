"""Maps that know nothing of the model: what a method must beat before it may be called an explanation.

They are called as methods are, so that a judge treats them alike.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from vitral.base.files import sha256_bytes
from vitral.base.numbers import to_numpy
from vitral.draw.heatmap import Heatmap
from vitral.look.choice import check_item
from vitral.look.maps import heat, to_patches
from vitral.look.occlusion import grid_of
from vitral.look.rerun import images_of
from vitral.model.tape import Tape


def random(tape: Tape, item: int = 0) -> Heatmap:
    """Noise: other numbers for every picture, the same for the same picture."""
    item = check_item(tape, item)
    image = to_numpy(images_of(tape)[item].float().contiguous())
    seed = int(sha256_bytes(image.tobytes())[:8], 16)
    return heat(tape, item, np.random.default_rng(seed).random(grid_of(tape.model)), "random")


def edges(tape: Tape, item: int = 0) -> Heatmap:
    """How much the brightness changes inside each patch (Sobel): where there is something to see, for anybody."""
    item = check_item(tape, item)
    grey = images_of(tape)[item].detach().float().mean(dim=0)[None, None]
    across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]], device=grey.device)
    kernels = torch.stack([across, across.T])[:, None]
    change = F.conv2d(F.pad(grey, (1, 1, 1, 1), mode="replicate"), kernels)[0]  # (2, H, W)
    strength = to_numpy(change.square().sum(dim=0).sqrt())
    return heat(tape, item, to_patches(strength.astype(np.float64), grid_of(tape.model)), "edges")


def centre(tape: Tape, item: int = 0) -> Heatmap:
    """The nearer to the middle the more: photographers put things there."""
    item = check_item(tape, item)
    rows, columns = grid_of(tape.model)
    down, across = (np.arange(count) - (count - 1) / 2 for count in (rows, columns))
    return heat(tape, item, np.exp(-2 * ((down[:, None] / rows) ** 2 + (across / columns) ** 2) / 0.5**2), "centre")
