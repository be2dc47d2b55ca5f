"""What a plan says of memory is what a step takes, and what it says will fit does fit."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from vitral.build import build
from vitral.config import RunConfig, TrainConfig
from vitral.cost.memory import PeakMemory, fitting_batch
from vitral.cost.precision import dtype_of
from vitral.data.loader import Batch
from vitral.presets.models import model
from vitral.train.parallel import World
from vitral.train.steps import Stepper, run_memory
from vitral.train.tasks import task_of

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
GIB = 2**30


def config_of(batch: int, precision: str) -> RunConfig:
    return RunConfig("memory", model("s/16"), train=TrainConfig(batch_size=batch, precision=precision, compile="no", ema=0.99))  # type: ignore[arg-type]


def peak_of(config: RunConfig, device: torch.device) -> int:
    """Bytes at the worst moment of two real steps."""
    count = config.train.batch_size
    found = Stepper(build(config.model).to(device), task_of(config.train), config.train, device, World())
    labels = torch.zeros(count, dtype=torch.int64, device=device)
    batch = Batch(torch.randn(count, 3, 224, 224, device=device), labels, None, None, torch.arange(count))
    peak = PeakMemory(device)
    for _ in range(2):
        found.step(batch, 1.0, None)
    return peak.bytes()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_plan_of_memory_comes_true(cuda: torch.device, precision: str) -> None:
    config = config_of(64, precision)
    planned = run_memory(config, 64, dtype_of(precision, cuda), compiled=False).total
    measured = peak_of(config, cuda)
    print(f"{precision}: planned {planned / GIB:.2f} GiB, measured {measured / GIB:.2f} GiB, {planned / measured:.2f}")
    assert 0.8 < planned / measured < 1.3


def test_what_is_said_to_fit_does_fit(cuda: torch.device) -> None:
    whole, space = torch.cuda.get_device_properties(cuda).total_memory, 4 * GIB
    fits = fitting_batch(lambda images: run_memory(config_of(64, "bf16"), images, torch.bfloat16, compiled=False).total, space, below=4096)
    assert fits >= 16
    torch.cuda.set_per_process_memory_fraction(space / whole, torch.cuda.current_device())
    try:
        peak_of(dataclasses.replace(config_of(fits, "bf16")), cuda)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            peak_of(config_of(3 * fits, "bf16"), cuda)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, torch.cuda.current_device())
