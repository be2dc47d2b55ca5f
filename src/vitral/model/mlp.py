"""The MLP of a block: each token on its own, widened, bent, narrowed."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vitral.config import ModelConfig
from vitral.kernels.gelu import linear_gelu
from vitral.model.norm import make_norm
from vitral.model.tape import Tape


class MLP(nn.Module):
    def __init__(self, config: ModelConfig, name: str) -> None:
        super().__init__()
        self.name = name
        doubled = 2 if config.activation == "swiglu" else 1  # a gate beside each value
        self.expand = nn.Linear(config.width, doubled * config.mlp_width, bias=config.bias)
        self.is_gelu = config.activation == "gelu"
        self.activation = ACTIVATIONS[config.activation]
        inner = config.sub_norm != "none"
        self.hidden_norm = make_norm(config.norm, config.mlp_width, config.norm_epsilon) if inner else nn.Identity()
        self.contract = nn.Linear(config.mlp_width, config.width, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: torch.Tensor, tape: Tape | None = None) -> torch.Tensor:
        if self.is_gelu:
            hidden = linear_gelu(tokens, self.expand)  # (B, T, M)
        else:
            hidden = self.activation(self.expand(tokens))
        if tape is not None:
            hidden = tape.record(self.name + ".hidden", hidden)
        output = self.dropout(self.contract(self.hidden_norm(self.dropout(hidden))))  # (B, T, D)
        return output if tape is None else tape.record(self.name + ".output", output)


def quick_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def swiglu(x: torch.Tensor) -> torch.Tensor:
    gate, value = x.chunk(2, dim=-1)
    return F.silu(gate) * value


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": quick_gelu,
    "relu": F.relu,
    "swiglu": swiglu,
}
