"""How much memory a training step takes, found by going through one without computing anything.

The step runs on fake tensors, which have shapes but no numbers; every storage that comes to life and dies is counted. What PyTorch's
eager mode would hold at the worst moment is therefore exact; a compiled step holds less (the compiler merges element-wise work).
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vitral.build import build
from vitral.config import RunConfig
from vitral.train.optim import choose, groups

MARGIN = 0.92
"""Share of a device's memory that a plan may fill: the rest is the runtime's own and lost between blocks."""
COMPILED = 0.75
"""Activations of a compiled step relative to the eager one, as a rough figure for ViTs."""


@dataclass(frozen=True)
class Memory:
    """Bytes at the worst moment of a step."""

    weights: int
    optimizer: int
    average: int
    step: int
    """Activations, gradients and what is computed in between."""
    data: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.optimizer + self.average + self.step + self.data


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of storages that are alive, and the most there ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.count(leaf)
        return out

    def count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        size = storage.nbytes()
        self._seen.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


def step_memory(
    config: RunConfig, pictures: int, device: str = "cpu", dtype: torch.dtype = torch.float32, compiled: bool = False, data: int = 0
) -> Memory:
    """The memory of one step on `pictures` pictures at a time."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from vitral.train.prepare import autocast
    from vitral.train.tasks import Learner, classification

    model_config = config.model
    with torch.device("meta"):
        model = build(model_config).train()
    learning = choose(model, config.train.tune)
    weights = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    gradients = sum(parameter.numel() * 4 for parameter in learning.values())
    learner = Learner(model, classification(config.train.label_smoothing))
    with FakeTensorMode(allow_non_fake_inputs=True):
        stand_ins = {name: torch.empty(value.shape, dtype=value.dtype) for name, value in learner.named_buffers()}
        for name, value in learner.named_parameters():
            stand_ins[name] = torch.empty(value.shape, dtype=value.dtype, requires_grad=value.requires_grad)
        images = torch.empty(pictures, model_config.channels, *model_config.image_size)
        labels = torch.zeros(pictures, dtype=torch.int64)
        with LiveBytes() as live:
            live.count(images)
            with autocast(dtype, torch.device("cpu")):
                outcome = torch.func.functional_call(learner, stand_ins, (images, labels))
            outcome.loss.backward()
            activations = live.most
    moments = {"adamw": 2, "sgd": 1, "muon": 1}
    sizes = {name: parameter.numel() for name, parameter in learning.items()}
    found = groups(learning, config.train, model_config.depth)
    optimizer = sum(4 * moments[group.rule] * sum(sizes[name] for name in group.names) for group in found)
    # Muon stacks its gradients, and the update is a second copy.
    stacked = 3 * sum(4 * sizes[name] for group in found if group.rule == "muon" for name in group.names)
    step = max(int(activations * (COMPILED if compiled else 1)), gradients + stacked)
    average = weights if config.train.ema is not None else 0
    return Memory(weights, optimizer, average, step, data)


def fitting_batch(config: RunConfig, available: int | None, device: str, below: int) -> int:
    """The most pictures at a time that fit into `available` bytes, fewer than `below`, which did not; 0: not even one."""
    space = (available or free_memory()) * MARGIN
    few, more = (step_memory(config, count).total for count in (2, 6))
    slope = max(1.0, (more - few) / 4)
    count = int((space - (few - 2 * slope)) // slope)
    count = min(count, below // 2 if count >= below else below - 1)
    return max(0, count if count < 8 else count // 8 * 8)


def free_memory() -> int:
    """Bytes of main memory that are free for use."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
