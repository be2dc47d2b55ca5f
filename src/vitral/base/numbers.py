"""From a tensor of any device to numbers. The one place that does it: Apple's GPU has no 64-bit floats, so the host comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


def to_double(value: Tensor) -> Tensor:
    """On the host in double precision, without gradients: long sums and products of matrices lose digits otherwise."""
    return value.detach().cpu().double()


def to_numpy(value: Tensor) -> np.ndarray:
    """On the host in its own dtype, without gradients. NumPy has no bf16, so call `.float()` first where that may come."""
    return value.detach().cpu().numpy()
