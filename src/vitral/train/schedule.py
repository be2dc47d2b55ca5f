"""Learning rates and other things that change over a run, as closed forms of `progress` (0 at the start, 1 at the end)."""

from __future__ import annotations

import math

from vitral.config import TrainConfig


def lr_factor(config: TrainConfig, progress: float, step_share: float = 0.0) -> float:
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


def shown_patches(config: TrainConfig, progress: float) -> float | None:
    """Share of patches the model sees now; None: all of them. Two shares at most: each is a shape to be compiled."""
    dropped = config.token_drop if progress < config.token_drop_until else config.token_drop_after
    return 1 - dropped if dropped else None


def token_shares(config: TrainConfig) -> dict[float | None, float]:
    """Every value `shown_patches` takes in a run, and for what share of it."""
    shares: dict[float | None, float] = {}
    for progress, share in ((0.0, config.token_drop_until), (1.0, 1 - config.token_drop_until)):
        if share:
            keep = shown_patches(config, progress)
            shares[keep] = shares.get(keep, 0.0) + share
    return shares


def snapshot_steps(number: int, total: int) -> set[int]:
    """`number` log-spaced steps from 0 (the untrained model) to `total`."""
    if number <= 0:
        return set()
    if number == 1:
        return {total}
    return {0, total, *(round(total ** (index / (number - 2))) for index in range(number - 2))} if total > 0 else {0}


def snapshots_by(number: int, step: int, progress: float) -> int:
    """How many of `number` snapshots are due by now. Where the clock ends a run, its pace so far foretells its last step."""
    return sum(planned <= step for planned in snapshot_steps(number, round(step / progress) if progress > 0 else 1))


def ema_decay(decay: float, updates: int) -> float:
    """Decay of the EMA after `updates` updates: it starts small, so that the average forgets the random start."""
    return min(decay, (1 + updates) / (10 + updates))
