"""Time and memory of a model on this machine: for the cost study, and to predict what a study will take."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from vitral.build import build
from vitral.config import ModelConfig, TrainConfig

STATUS = Path("/proc/self/status")


class PeakMemory:
    """Most bytes in use since it was made: of the GPU's memory, or of the whole process on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # Linux: start the high-water mark anew

    def bytes(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        with contextlib.suppress(OSError):
            for line in STATUS.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        import resource
        import sys

        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest * 1024


@dataclass(frozen=True)
class Measured:
    """Medians, per picture."""

    forward_seconds: float
    training_seconds: float
    memory: int
    """Bytes of one training step with the batch."""
    batch: int


def measure(config: ModelConfig, batch: int, device: torch.device, *, repeats: int = 3, train: TrainConfig | None = None) -> Measured:
    """Run the model on noise: forward alone, and forward, backward and an AdamW step."""
    precision = (train or TrainConfig()).precision
    half = precision == "bf16" or (precision == "auto" and device.type == "cuda")
    torch.manual_seed(0)
    model = build(config).to(device)
    images = torch.randn(batch, config.channels, *config.image_size, device=device)
    labels = torch.randint(max(1, config.classes), (batch,), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    cast = torch.autocast(device.type, torch.bfloat16) if half else contextlib.nullcontext()

    def forward() -> None:
        with torch.no_grad(), cast:
            model(images)

    def step() -> None:
        with cast:
            loss = F.cross_entropy(model(images).float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    model.eval()
    forward_seconds = _median(forward, repeats, device) / batch
    model.train()
    peak = PeakMemory(device)
    training_seconds = _median(step, repeats, device) / batch
    return Measured(forward_seconds, training_seconds, peak.bytes(), batch)


def _median(action: Callable[[], None], repeats: int, device: torch.device) -> float:
    action()  # the first one also loads kernels and fills caches
    times = []
    for _ in range(repeats):
        _wait(device)
        began = time.perf_counter()
        action()
        _wait(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
