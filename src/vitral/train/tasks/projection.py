"""From features to what a loss compares: an MLP whose hidden layers are normalised over the batch of all processes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitral.train.parallel import everywhere


class BatchNorm(nn.Module):
    """Each number centred and scaled over the batch, also over all processes, also on a CPU. It keeps no running figures: a
    projection is used while learning alone."""

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, values: Tensor) -> Tensor:
        centred = values.float() - everywhere(values.float().mean(0))
        spread = everywhere(centred.square().mean(0)).add(self.epsilon).rsqrt()
        return (centred * spread * self.weight + self.bias).to(values.dtype)


class Projection(nn.Sequential):
    """Linear → norm → GELU, twice, then linear: (N, width) → (N, out)."""

    def __init__(self, width: int, hidden: int, out: int, *, normed: bool = True) -> None:
        first, second = nn.Linear(width, hidden), nn.Linear(hidden, hidden)
        norms = (BatchNorm(hidden), BatchNorm(hidden)) if normed else (nn.Identity(), nn.Identity())
        super().__init__(first, norms[0], nn.GELU(), second, norms[1], nn.GELU(), nn.Linear(hidden, out))
