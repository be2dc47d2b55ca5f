"""How long a step takes: estimated for a named GPU, or as a law fitted to times that were measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitral.base.errors import one_of


@dataclass(frozen=True)
class GPU:
    peak: float
    """bf16 (T4, V100: fp16) FLOP/s of dense products, by the maker's data sheet."""
    memory: int
    """GiB."""


GPUS = {
    "h200": GPU(989e12, 141),
    "h100": GPU(989e12, 80),
    "a100": GPU(312e12, 80),
    "a100-40": GPU(312e12, 40),
    "l40s": GPU(362e12, 48),
    "a10": GPU(125e12, 24),
    "l4": GPU(121e12, 24),
    "4090": GPU(165e12, 24),
    "3090": GPU(71e12, 24),
    "v100": GPU(125e12, 16),
    "t4": GPU(65e12, 16),
}

LAUNCH = 3e-3
"""Seconds that even the smallest step takes on a GPU: hundreds of kernels must be launched."""
TINY = 2e9
"""FLOPs of a batch's forward pass up to which a CPU's second thread gains nothing: a step like that of digits (1.3e9) took 41 ms with
one thread, 44 with two."""
EFFICIENCY = ((192, 0.10), (256, 0.17), (384, 0.22), (768, 0.39), (1280, 0.42))
"""(width, share of the peak reached in training), from compiled bf16 steps on an H200; between them by the logarithm of the width."""


def find_gpu(name: str) -> GPU:
    """By its name in `GPUS`, in capitals or not."""
    if name.lower() not in GPUS:
        raise one_of("GPU", name, GPUS)
    return GPUS[name.lower()]


def efficiency(width: int) -> float:
    """Share of the peak that a ViT of this width reaches in training."""
    low = max((row for row in EFFICIENCY if row[0] <= width), default=EFFICIENCY[0])
    high = min((row for row in EFFICIENCY if row[0] >= width), default=EFFICIENCY[-1])
    if low[0] == high[0]:
        return low[1]
    share = math.log(width / low[0]) / math.log(high[0] / low[0])
    return low[1] + share * (high[1] - low[1])


@dataclass(frozen=True)
class _TimeLaw:
    """Training time of an image = fixed + a·linear + b·quadratic GFLOPs, in milliseconds.

    The fixed part is what a step costs however small the model: starting kernels, the optimizer.
    """

    fixed_ms: float
    linear_ms_per_gflop: float
    quadratic_ms_per_gflop: float
    largest_error: float
    """Relative, over the times that it was fitted to."""

    def ms(self, linear: float, quadratic: float) -> float:
        """For so many FLOPs."""
        return self.fixed_ms + (self.linear_ms_per_gflop * linear + self.quadratic_ms_per_gflop * quadratic) / 1e9


def fit_time(linear: Sequence[float], quadratic: Sequence[float], measured_ms: Sequence[float]) -> _TimeLaw | None:
    """The law of FLOPs and measured times: no part negative, by relative least squares.

    None with three times or fewer: as many points as numbers fitted are met exactly, which would predict nothing.
    """
    from scipy.optimize import nnls

    measured = np.asarray(measured_ms, dtype=float)
    if len(measured) <= 3:
        return None
    parts = np.stack([np.ones(len(measured)), np.asarray(linear) / 1e9, np.asarray(quadratic) / 1e9], axis=1)
    (fixed, a, b), _ = nnls(parts / measured[:, None], np.ones(len(measured)))
    error = float(np.abs(parts @ np.array([fixed, a, b]) / measured - 1).max())
    return _TimeLaw(float(fixed), float(a), float(b), error)
