"""A model's pass as a recorded CUDA graph: one picture at a time waits for Python to launch kernels, and a replay is one launch.

Recorded when a shape comes the second time, replayed from the third on; the same kernels on the same weights, so the same numbers. What
cannot be recorded (a CPU, a large batch, gradients, hooks, weights that have moved) runs as it always does.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vitral.kernels.recorded import Recorded

LARGEST = 8
"""Images at a time up to which the launches take longer than the kernels."""
SHAPES = 4
"""Recorded shapes of one model; more would hold memory for what hardly comes again."""


class Recordings:
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
            if (weights := where_weights_are(model)) != self._weights:  # moved, or hooked: a graph would read where they were
                self._passes.clear()
                self._weights = weights
            key = (tuple(images.shape), images.dtype, torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))
            if weights is None or key in self._refused or (key not in self._passes and len(self._passes) >= SHAPES):
                return model(images)
            if key not in self._passes:
                self._passes[key] = None
                return model(images)
            if (known := self._passes[key]) is None:
                try:
                    known = self._passes[key] = record(model, images)
                except RuntimeError:  # something in it waits for the GPU, or there is no memory for it
                    self._refused.add(key)
                    return model(images)
            return known(images)


def recordable(images: Tensor) -> bool:
    """Few images on a GPU, and nobody who wants gradients or is recording already."""
    return images.is_cuda and len(images) <= LARGEST and not torch.is_grad_enabled() and not torch.cuda.is_current_stream_capturing()


def where_weights_are(model: nn.Module) -> tuple[int, ...] | None:
    """The address of each weight and buffer; None where a hook or a mode of training needs Python in every pass."""
    found, waiting = [], [model]
    while waiting:
        module = waiting.pop()
        if module.training or module._forward_hooks or module._forward_pre_hooks:
            return None
        found += [value.data_ptr() for value in (*module._parameters.values(), *module._buffers.values()) if value is not None]
        waiting += [child for child in module._modules.values() if child is not None]
    return tuple(found)


def record(model: nn.Module, images: Tensor) -> Recorded:
    # Weights cast before would be read, once recorded, from memory that is freed with autocast's cache: casts belong into the graph.
    enabled, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    with torch.inference_mode(False), torch.no_grad(), torch.autocast("cuda", dtype, enabled, cache_enabled=False):
        return Recorded(model, images)


_KNOWN: weakref.WeakKeyDictionary[nn.Module, Recordings] = weakref.WeakKeyDictionary()


def replayed(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The pass of a model, recorded where that pays. A later call for the same model finds what is recorded."""
    recordings = _KNOWN.setdefault(model, Recordings())
    return lambda images: recordings.run(model, images)
