"""CUDA graphs: launches that wait for Python, recorded once and replayed as one.

`Recorded` records any function of tensors: the same kernels in the same order, so the same bits, and nothing is compiled.
`replayed` does so for a model's pass over few images: it records a shape when it comes the second time and replays it from the third on.
What cannot be recorded (a CPU, a large batch, gradients, hooks, moved weights) runs as it always does.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

LARGEST = 8
"""Images at a time up to which the launches take longer than the kernels."""
SHAPES = 4
"""Recorded shapes of one model; more would hold memory for what hardly comes again."""


class Recorded:
    """Call it with tensors of the shapes and on the device that it was recorded with."""

    def __init__(self, function: Callable[..., Tensor], *inputs: Tensor) -> None:
        self.inputs = [value.clone() for value in inputs]
        device = inputs[0].device
        with beside(device):
            for _ in range(2):  # first times (a library's start, a choice of kernels) cannot be recorded
                function(*self.inputs)
        self.graph: Any = torch.cuda.CUDAGraph()
        # On a stream of the inputs' device: PyTorch's own for this belongs to whichever was used first. Other threads may use the device
        # meanwhile: those that bring the next pictures do.
        with torch.cuda.graph(self.graph, stream=torch.cuda.Stream(device), capture_error_mode="thread_local"):
            self.output = function(*self.inputs)

    def __call__(self, *inputs: Tensor) -> Tensor:
        for buffer, value in zip(self.inputs, inputs, strict=True):
            buffer.copy_(value)
        self.graph.replay()
        return self.output.clone()  # the next replay writes over it


@contextmanager
def beside(device: torch.device) -> Iterator[None]:
    """On a stream of its own, as what is recorded next demands."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)


class _Recordings:
    """What is recorded of one model, which it does not keep alive."""

    def __init__(self) -> None:
        self._passes: dict[tuple[Any, ...], Recorded | None] = {}
        """None: seen once."""
        self._refused: set[tuple[Any, ...]] = set()
        self._weights: tuple[int, ...] | None = ()
        self._lock = threading.Lock()  # threads share the memory that a graph reads and writes

    def run(self, model: nn.Module, images: Tensor) -> Tensor:
        """`model(images)`, replayed where that is possible."""
        if not recordable(images):
            return model(images)
        with self._lock:
            if (weights := _weight_addresses(model)) != self._weights:  # moved, or hooked: a graph would read where they were
                self._passes.clear()
                self._weights = weights
            key = (tuple(images.shape), images.dtype, torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))
            if weights is None or key in self._refused or (key not in self._passes and len(self._passes) >= SHAPES):
                return model(images)
            if key not in self._passes:
                self._passes[key] = None
                return model(images)
            if (recorded := self._passes[key]) is None:
                try:
                    recorded = self._passes[key] = record(model, images)
                except RuntimeError:  # something in it waits for the GPU, or there is no memory for it
                    self._refused.add(key)
                    return model(images)
            return recorded(images)


def recordable(images: Tensor) -> bool:
    """Few images on a GPU, and nobody who wants gradients or is recording already."""
    return images.is_cuda and len(images) <= LARGEST and not torch.is_grad_enabled() and not torch.cuda.is_current_stream_capturing()


def _weight_addresses(model: nn.Module) -> tuple[int, ...] | None:
    """The address of each weight and buffer; None where a hook or a mode of training needs Python in every pass."""
    addresses, waiting = [], [model]
    while waiting:
        module = waiting.pop()
        if module.training or module._forward_hooks or module._forward_pre_hooks:
            return None
        addresses += [value.data_ptr() for value in (*module._parameters.values(), *module._buffers.values()) if value is not None]
        waiting += [child for child in module._modules.values() if child is not None]
    return tuple(addresses)


def record(model: nn.Module, images: Tensor) -> Recorded:
    # Weights cast before would be read, once recorded, from memory that is freed with autocast's cache: casts belong into the graph.
    enabled, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    with torch.inference_mode(False), torch.no_grad(), torch.autocast("cuda", dtype, enabled, cache_enabled=False):
        return Recorded(model, images)


_RECORDINGS: weakref.WeakKeyDictionary[nn.Module, _Recordings] = weakref.WeakKeyDictionary()


def replayed(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The pass of a model, recorded where that pays. A later call for the same model finds what is recorded."""
    recordings = _RECORDINGS.setdefault(model, _Recordings())
    return lambda images: recordings.run(model, images)
