"""LayerNorm or RMSNorm."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    """Divide by the root mean square; under autocast it stays in the stream's own precision, which is faster."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(tokens, self.weight.shape, self.weight.to(tokens.dtype), self.epsilon)


def make_norm(kind: str, width: int, epsilon: float) -> nn.Module:
    return _NORMS[kind](width, epsilon)


_NORMS: dict[str, Callable[[int, float], nn.Module]] = {"layer": lambda width, epsilon: nn.LayerNorm(width, eps=epsilon), "rms": RMSNorm}
