import dataclasses
import mmap
from pathlib import Path

import pytest
import torch

from vitral.config import RunConfig
from vitral.cost.memory import LiveBytes, Memory, PeakMemory, fitting_batch, free_memory
from vitral.presets.models import model
from vitral.presets.runs import run
from vitral.train.steps import run_memory


def test_live_bytes_counts_what_is_alive():
    with LiveBytes() as live:
        first = torch.zeros(1000)
        second = first + 1
        view = second.view(10, 100)
        assert live.now == 8000
        del first
        assert live.now == 4000
        del second, view
        third = torch.zeros(500)
    assert live.now == third.numel() * 4 and live.most == 8000


def memory(config: RunConfig, images: int, dtype: torch.dtype = torch.float32, compiled: bool = False) -> Memory:
    """What `run_memory` tells `step_memory` of the task, the optimizer and what learns."""
    return run_memory(config, images, dtype, compiled)


def test_a_step_grows_with_the_batch_and_holds_weights_moments_and_average():
    config = dataclasses.replace(run("digits", optimizer="adamw"), model=model("tiny"))
    few, more = memory(config, 8), memory(config, 32)
    assert few.weights == more.weights == few.ema and few.optimizer == 2 * few.weights
    assert 3.2 < more.step / few.step < 4.2
    for dtype in (torch.bfloat16, torch.float16):
        assert 0.4 * more.step < memory(config, 32, dtype).step < 0.9 * more.step
    assert memory(config, 32, compiled=True).step < more.step
    frozen = dataclasses.replace(config, train=dataclasses.replace(config.train, tune="head"))
    assert memory(frozen, 32).step < 0.5 * more.step and memory(frozen, 32).optimizer < 0.1 * more.optimizer


def test_the_batch_that_fits_does_fit_and_is_smaller():
    config = dataclasses.replace(run("digits"), model=model("tiny"))

    def total(images: int) -> int:
        return memory(config, images).total

    space = total(100)
    count = fitting_batch(total, space, below=512)
    assert 70 <= count <= 100 and total(count) <= space
    assert fitting_batch(total, space, below=64) == 32
    assert fitting_batch(total, 1000, below=64) == 0
    assert fitting_batch(lambda images: images * free_memory() // 100, None, below=512) in range(80, 93)


def test_muon_keeps_one_moment_and_needs_room_to_step():
    config = dataclasses.replace(run("digits", optimizer="muon", ema=None), model=model("tiny", depth=6, width=96, mlp_width=384))
    adam = dataclasses.replace(config, train=dataclasses.replace(config.train, optimizer="adamw"))
    assert memory(config, 1).optimizer < memory(adam, 1).optimizer == 2 * memory(adam, 1).weights
    assert memory(config, 1).step > 3 * memory(adam, 1).weights and memory(config, 1).ema == 0


def test_the_peak_of_a_process_is_seen():
    peak = PeakMemory(torch.device("cpu"))
    before = peak.bytes()
    # Where the kernel lets nobody start the mark anew, it still holds what earlier tests took: that room is filled first.
    size = max(0, before - resident()) + (256 << 20)
    with mmap.mmap(-1, size) as block:  # pages of its own: the allocator would cut it out of what earlier tests gave back
        for at in range(0, size, mmap.PAGESIZE):
            block[at] = 1
        assert peak.bytes() >= before + 0.9 * (256 << 20)


def resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def test_on_a_mac_the_peak_is_what_the_driver_holds(monkeypatch: pytest.MonkeyPatch):
    held = [7 << 20]
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: held.append(1 << 20))
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: held[-1])
    peak = PeakMemory(torch.device("mps"))
    assert peak.bytes() == 1 << 20, "what others left in the cache does not count"
    held.append(3 << 20)
    assert peak.bytes() == 3 << 20
