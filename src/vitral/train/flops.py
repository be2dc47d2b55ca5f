"""What learning from a picture costs, in forward passes, by which parameters learn."""

from __future__ import annotations

import functools

from vitral.build import shadow
from vitral.config import ModelConfig
from vitral.model.cost import counted_flops
from vitral.train.optim import choose

WHOLE = 3.0
"""One forward, two backward: the literature's count where everything learns."""


@functools.cache
def passes(config: ModelConfig, tune: str = "all") -> float:
    """Forward passes that learning from one picture costs.

    Where parts are frozen, the backward pass is counted as it runs: it ends at the first layer that learns, and only layers that
    learn have gradients of weights.
    """
    if tune == "all":
        return WHOLE
    model, image = shadow(config), (config.channels, *config.image_size)
    choose(model, tune)
    return counted_flops(model, image, backward=True) / counted_flops(model, image)
