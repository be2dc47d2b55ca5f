"""An exponential moving average of the weights, updated in a few fused launches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vitral.train.schedule import ema_decay

_STATISTICS = ("running_mean", "running_var")
"""Of batch norms."""


class EMA:
    """ema ← d · ema + (1 − d) · weights after every step, with d = min(decay, (1 + k) / (10 + k)).

    Batch statistics are averaged with the weights they belong to; counters are copied, and so are frozen parameters that
    something else moves (`moved`: a teacher's).
    `values` are named as in the model's state dict.
    """

    def __init__(self, model: nn.Module, decay: float, moved: bool = False) -> None:
        self.decay, self.updates = decay, 0
        self.values = {name: value.detach().clone() for name, value in model.state_dict().items()}
        learned = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        averaged = [name for name in self.values if name in learned or name.endswith(_STATISTICS)]
        others = model.state_dict() if moved else dict(model.named_buffers())
        self._copied = [name for name in others if name in self.values and name not in averaged]
        live = model.state_dict()
        self._sources = [local(live[name]) for name in averaged]
        self._targets = [local(self.values[name]) for name in averaged]

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        weight = 1 - ema_decay(self.decay, self.updates)
        torch._foreach_lerp_(self._targets, self._sources, weight)
        if self._copied:
            live = model.state_dict()
            for name in self._copied:
                self.values[name].copy_(live[name])
        self.updates += 1

    @contextmanager
    def inside(self, model: nn.Module) -> Iterator[None]:
        """The model computes with the averaged weights inside the block and has its own back, bit for bit, after it."""
        live = {name: value.detach() for name, value in model.state_dict().items()}
        own = {name: value.clone() for name, value in live.items()}
        try:
            copy_values(self.values, live)
            yield
        finally:
            copy_values(own, live)

    def restart(self, model: nn.Module) -> None:
        """Forget everything: the EMA is the model as it is now."""
        copy_values({name: value.detach() for name, value in model.state_dict().items()}, self.values)
        self.updates = 0


@torch.no_grad()
def copy_values(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    """Copy tensor by tensor, in place; sharded tensors copy their own shard."""
    names = list(target)
    torch._foreach_copy_([local(target[name]) for name in names], [local(source[name]) for name in names])


def local(value: Tensor) -> Tensor:
    """This process's part of a sharded tensor; a plain tensor is itself. Element-wise work needs no more."""
    value = value.detach()
    return value.to_local() if hasattr(value, "to_local") else value  # type: ignore[operator]
