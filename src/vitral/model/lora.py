"""LoRA (Hu et al. 2021, arXiv 2106.09685): a layer stays as it is, and the product of two thin matrices beside it learns.

D numbers in, M out, rank r. What is saved is the sum, one matrix again: nothing that loads a model ever sees the two.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.base.errors import ConfigError
from vitral.base.numbers import to_double
from vitral.model.vit import ViT

_DOWN, _UP = "lora_down", "lora_up"


class LowRankLinear(nn.Linear):
    """W·x + b + α/r · up·(down·x). `up` starts at zero, so at first it is the layer it was made of."""

    def __init__(self, layer: nn.Linear, rank: int, alpha: float, generator: torch.Generator) -> None:
        nn.Module.__init__(self)  # nn.Linear's own would make a second matrix
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.scale = alpha / rank
        bound = self.in_features**-0.5
        down = torch.empty(rank, self.in_features).uniform_(-bound, bound, generator=generator)
        self.lora_down = nn.Parameter(down.to(self.weight))  # (r, D)
        self.lora_up = nn.Parameter(self.weight.new_zeros(self.out_features, rank))  # (M, r)

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) + F.linear(F.linear(tokens, self.lora_down), self.scale * self.lora_up)


def add_lora(model: nn.Module, where: str, rank: int, alpha: float, seed: int) -> None:
    """Put low-rank matrices beside those of attention, of the MLPs, or of both; where there are some already, nothing changes."""
    if not isinstance(model, ViT):
        raise ConfigError(f"tune = lora is for Vision Transformers, not {_kind(model)}", "use tune = all or head")
    generator = torch.Generator().manual_seed(seed)
    for name, layer in list(model.named_modules()):
        if type(layer) is not nn.Linear or not _is_adapted(name, where):
            continue
        if rank >= min(layer.in_features, layer.out_features):
            shape = f"{layer.in_features} → {layer.out_features}"
            raise ConfigError(f"lora_rank {rank} is not below the sizes of {name} ({shape})", "use a smaller rank, such as 8")
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, LowRankLinear(layer, rank, alpha, generator))


def is_lora(name: str) -> bool:
    return name.endswith((_DOWN, _UP))


def merge_lora(values: dict[str, Tensor], rank: int, alpha: float) -> dict[str, Tensor]:
    """The same model as a plain state dict: each pair of thin matrices added to the matrix it stands beside."""
    merged = {name: value for name, value in values.items() if not is_lora(name)}
    for name in values:
        if name.endswith(_UP):
            layer = name.removesuffix(_UP)
            # In double precision: rounded once, as any stored weight is.
            product = to_double(values[name]) @ to_double(values[layer + _DOWN])
            merged[layer + "weight"] = (to_double(values[layer + "weight"]) + alpha / rank * product).to(values[layer + "weight"])
    return merged


def _is_adapted(name: str, where: str) -> bool:
    if not name.startswith(("blocks.", "pool.")) or ".relative." in name:
        return False
    return where == "all" or (".mlp." in name) == (where == "mlp")


def _kind(model: nn.Module) -> str:
    family = getattr(getattr(model, "config", None), "family", type(model).__name__)
    return "a module of one's own" if family == "own" else f"a {family}"
