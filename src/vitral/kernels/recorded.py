"""A function of tensors recorded as a CUDA graph: what waits for Python to launch many small kernels becomes one launch.

The same kernels in the same order, so the same bits; nothing is compiled, so the first result is there at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


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
        for mine, given in zip(self.inputs, inputs, strict=True):
            mine.copy_(given)
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
