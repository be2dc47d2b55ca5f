"""Learning rates and other things that change over a run, as closed forms of `progress` (0 at the start, 1 at the end)."""

from __future__ import annotations

import math

from vitral.config import TrainConfig

TOKEN_LEVELS = 4
"""Token dropping fades out in this many equal steps: each share of patches is one shape, and one compilation."""


def rate(config: TrainConfig, progress: float, step_share: float = 0.0) -> float:
    """The factor on the peak learning rate. `step_share`: what share of the run one step is, so that the first step learns already."""
    warm = min(1.0, (progress + step_share) / config.warmup) if config.warmup > 0 else 1.0
    rest = min(1.0, max(0.0, (progress - config.warmup) / (1 - config.warmup)))
    if config.schedule == "cosine":
        after = config.final_lr + (1 - config.final_lr) * 0.5 * (1 + math.cos(math.pi * rest))
    elif config.schedule == "linear":
        after = 1 - (1 - config.final_lr) * rest
    elif config.schedule == "step":
        after = config.decay ** sum(progress >= milestone for milestone in config.milestones)
    else:
        after = 1.0
    return min(warm, after) if config.schedule != "step" else warm * after


def kept_patches(config: TrainConfig, progress: float) -> float | None:
    """Share of patches the model sees now; None: all of them."""
    if config.token_drop == 0 or progress >= config.token_drop_until:
        return None
    left = TOKEN_LEVELS - int(progress / config.token_drop_until * TOKEN_LEVELS)
    return 1 - config.token_drop * left / TOKEN_LEVELS


def token_levels(config: TrainConfig) -> list[float | None]:
    """Every value `kept_patches` takes in a run, first to last."""
    if config.token_drop == 0 or config.token_drop_until == 0:
        return [None]
    return [1 - config.token_drop * left / TOKEN_LEVELS for left in range(TOKEN_LEVELS, 0, -1)] + [None]


def snapshot_steps(number: int, total: int) -> set[int]:
    """`number` log-spaced steps from 0 (the untrained model) to `total`."""
    if number <= 0:
        return set()
    if number == 1:
        return {total}
    return {0, *(round(total ** (index / max(1, number - 2))) for index in range(number - 1))} if total > 0 else {0}


def average_decay(decay: float, updates: int) -> float:
    """Decay of the weight average after `updates` updates: it starts small, so that the average forgets the random start."""
    return min(decay, (1 + updates) / (10 + updates))
