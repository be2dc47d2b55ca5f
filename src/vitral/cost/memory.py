"""How much memory a training step takes, found by going through one without computing anything.

The step runs on fake tensors, which have shapes but no numbers; every storage that comes to life and dies is counted. What PyTorch's
eager mode would hold at the worst moment is therefore exact; a compiled step holds less (the compiler merges element-wise work).
"""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vitral.cost.flops import stand_ins
from vitral.cost.precision import autocast

try:
    import resource
except ImportError:  # not on Windows
    resource = None

MARGIN = 0.92
"""Share of a device's memory that a plan may fill: the rest is the runtime's own and lost between blocks."""
_COMPILED = 0.75
"""Activations of a compiled step relative to the eager one, as a rough figure for ViTs."""
_MOMENTS = {"adamw": 2, "sgd": 1, "muon": 1}
"""Numbers that an optimizer keeps for each parameter it moves."""
_WORKSPACE = {"muon": 3}
"""Numbers that it needs beside them while it steps: Muon stacks its gradients, and the update is a second copy."""
FLOAT = 4
"""Bytes: parameters, gradients and moments are fp32, whatever the step computes in."""


@dataclass(frozen=True)
class Memory:
    """Bytes at the worst moment of a step."""

    weights: int
    optimizer: int
    ema: int
    step: int
    """Activations, gradients and what is computed in between."""
    data: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.optimizer + self.ema + self.step + self.data


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
    learner: nn.Module,
    inputs: Sequence[Tensor],
    moved: Mapping[str, int],
    *,
    dtype: torch.dtype = torch.float32,
    compiled: bool = False,
    ema: bool = False,
    data: int = 0,
) -> Memory:
    """The memory of one step of `learner`, which gives `learner(*inputs).loss`; both may be on the meta device.

    Parameters that require a gradient learn; `moved` says how many of them each rule of `_MOMENTS` moves. `data`: bytes of a set
    that lies on the device all the time.
    """
    weights = sum(value.numel() * value.element_size() for value in learner.state_dict().values())
    with FakeTensorMode(allow_non_fake_inputs=True):
        weights_of, shown = stand_ins(learner, inputs)
        with LiveBytes() as live:
            for value in shown:
                live.count(value)
            with autocast(dtype, torch.device("cpu")):
                outcome = torch.func.functional_call(learner, weights_of, tuple(shown))
            outcome.loss.backward()
            activations = live.most
    optimizer = FLOAT * sum(_MOMENTS[rule] * count for rule, count in moved.items())
    update = FLOAT * sum((1 + _WORKSPACE.get(rule, 0)) * count for rule, count in moved.items())
    step = max(int(activations * (_COMPILED if compiled else 1)), update)
    return Memory(weights, optimizer, weights if ema else 0, step, data)


def fitting_batch(total: Callable[[int], int], available: int | None, below: int) -> int:
    """The most images at a time that fit into `available` bytes (None: free main memory), fewer than `below`, which did not fit.

    `total` gives the bytes for a number of images; 0: not even one fits.
    """
    space = (available or free_memory()) * MARGIN
    few, more = total(2), total(6)
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


class PeakMemory:
    """Most bytes in use since it was made: of the GPU's memory, or of the whole process on a CPU.

    Apple's driver keeps no peak. What it holds for this process comes near: freed memory stays there until the cache is emptied.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        elif device.type == "mps":
            torch.mps.empty_cache()
        else:
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # Linux: start the high-water mark anew

    def bytes(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        if self.device.type == "mps":
            return torch.mps.driver_allocated_memory()
        with contextlib.suppress(OSError, StopIteration):
            lines = Path("/proc/self/status").read_text().splitlines()
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
        if resource is None:
            return 0
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest * 1024
