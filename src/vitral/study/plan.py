"""What a training will cost, before anything is spent: parameters, FLOPs, memory, steps, and time.

Time is measured on this machine by a few real steps, or estimated for a named GPU from its peak and the share of it that
ViTs of this width reach.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch

from vitral.base.device import pick_device, set_threads
from vitral.base.errors import one_of
from vitral.base.progress import say
from vitral.build import forward_flops
from vitral.config import RunConfig
from vitral.train import advice
from vitral.train.evaluate import evaluate
from vitral.train.flops import passes
from vitral.train.memory import Memory, step_memory
from vitral.train.optim import choose
from vitral.train.parallel import World
from vitral.train.prepare import Setup, number_type, prepare
from vitral.train.schedule import token_shares
from vitral.train.steps import Stepper
from vitral.train.tasks import task_of

CALIBRATION = 4.0
"""Seconds of real steps."""


@dataclass(frozen=True)
class GPU:
    peak: float
    """bf16 (T4, V100: fp16) FLOP/s of dense products, by the maker's data sheet."""
    memory: int
    """GiB."""


GPUS = {
    "h200": GPU(989e12, 141),
    "h100": GPU(989e12, 80),
    "a100": GPU(312e12, 80),
    "a100-40": GPU(312e12, 40),
    "l40s": GPU(362e12, 48),
    "a10": GPU(125e12, 24),
    "l4": GPU(121e12, 24),
    "4090": GPU(165e12, 24),
    "3090": GPU(71e12, 24),
    "v100": GPU(125e12, 16),
    "t4": GPU(65e12, 16),
}

LAUNCH = 3e-3
"""Seconds that even the smallest step takes on a GPU: hundreds of kernels must be launched."""
EFFICIENCY = ((192, 0.10), (256, 0.17), (384, 0.22), (768, 0.39), (1280, 0.42))
"""(width, share of the peak reached in training), from compiled bf16 steps on an H200; between them by the logarithm of the width."""


@dataclass(frozen=True)
class Plan:
    run: str
    device: str
    parameters: int
    trained_parameters: int
    tokens: int | None
    forward_flops: int
    """Of one picture."""
    training_flops: float
    """Of the whole run: forward and backward of every picture."""
    pictures: int
    steps: int
    """As many as there is time for, where the seconds are limited."""
    epochs: float
    memory: Memory
    """At the worst moment of a step."""
    seconds: float
    """Training steps."""
    evaluation_seconds: float
    """All validations, and the test."""
    images_per_second: float
    measured: bool
    """True: by real steps on this machine; False: estimated from a table."""
    source: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "memory": {**dataclasses.asdict(self.memory), "total": self.memory.total}}

    def text(self) -> str:
        how = "measured by real steps" if self.measured else "an estimate"
        trained = f" ({self.trained_parameters:,} learn)" if self.trained_parameters != self.parameters else ""
        memory = self.memory
        parts = {
            "weights": memory.weights,
            "optimizer": memory.optimizer,
            "average": memory.average,
            "step": memory.step,
            "data": memory.data,
        }
        rows = [
            ("parameters", f"{self.parameters:,}{trained}"),
            ("tokens", f"{self.tokens}" if self.tokens else "–"),
            ("FLOPs", f"{self.forward_flops / 1e9:.3g} G per picture forward, {self.training_flops / 1e15:.3g} P for the run"),
            ("memory", f"{_bytes(memory.total)} ({', '.join(f'{name} {_bytes(size)}' for name, size in parts.items() if size)})"),
            ("steps", f"{self.steps:,} of {self.pictures:,} pictures, {self.epochs:g} epochs"),
            ("time", f"{_duration(self.seconds)} training + {_duration(self.evaluation_seconds)} evaluating ({how})"),
            ("speed", f"{self.images_per_second:,.0f} pictures/s"),
            ("on", f"{self.device}: {self.source}"),
        ]
        return "\n".join([f"plan of {self.run}", *(f"  {name:<11}{value}" for name, value in rows)])


def plan(config: RunConfig, gpu: str | None = None) -> Plan:
    """What `config` costs on this machine, or on a GPU of `GPUS`. Notes are said at once: a slow run is measured slowly."""
    if gpu is not None and gpu.lower() not in GPUS:
        raise one_of("GPU", gpu, GPUS)
    if config.train.threads is not None:
        set_threads(config.train.threads)
    device = torch.device("cpu") if gpu else pick_device(config.train.device)
    setup = prepare(config, device)
    config = setup.config
    notes = advice.before(setup)
    for note in notes:
        say(f"note: {note}")
    train, count = config.train, len(setup.data.train)
    batch = min(train.batch_size, count)
    per_epoch = max(1, count // batch)
    learning = choose(setup.model, train.tune)
    dtype = (torch.float32 if train.precision == "fp32" else torch.bfloat16) if gpu else number_type(train.precision, device)
    compiled = train.compile in ("yes", "max") or (train.compile == "auto" and (gpu is not None or device.type == "cuda"))
    stored = setup.data.train.bytes + setup.data.validation.bytes
    memory = step_memory(config, max(1, batch // train.accumulate), dtype=dtype, compiled=compiled, data=stored if stored < 2 << 30 else 0)
    flops = forward_flops(config.model)
    flops_per_step = passes(config.model, train.tune) * flops * batch * _token_share(config)
    if gpu is not None:
        share = efficiency(config.model.width)
        speed = GPUS[gpu.lower()].peak * share
        per_step, per_picture = max(flops_per_step / speed, LAUNCH), flops / speed
        device_name = gpu.lower()
        source = f"{GPUS[device_name].peak / 1e12:.0f} TFLOP/s × {share:.0%}, the share that ViTs of this width reach"
    else:
        say(f"measuring steps of {batch:,} pictures on this machine")
        per_step, per_picture, memory = calibrate(setup, memory)
        device_name, source = device.type, f"{per_step * 1e3:.3g} ms per step"
    steps = max(1, round(train.epochs * per_epoch))
    if train.max_seconds is not None:
        steps = max(1, min(steps, int(train.max_seconds / per_step)))
    seconds = per_step * steps
    evaluations = max(1, math.ceil(steps / max(1, round(train.evaluate_every * per_epoch))))
    evaluating = max(per_picture * evaluations * len(setup.data.validation), LAUNCH * evaluations if gpu else 0)
    if gpu is not None and memory.total > GPUS[gpu.lower()].memory * 2**30:
        notes.append(f"{_bytes(memory.total)} do not fit into {GPUS[gpu.lower()].memory} GiB: raise --accumulate")
        say(f"note: {notes[-1]}")
    return Plan(
        run=config.name,
        device=device_name,
        parameters=sum(parameter.numel() for parameter in setup.model.parameters()),
        trained_parameters=sum(parameter.numel() for parameter in learning.values()),
        tokens=config.model.tokens if config.model.family in ("vit", "hybrid") else None,
        forward_flops=flops,
        training_flops=flops_per_step * steps,
        pictures=batch,
        steps=steps,
        epochs=round(steps / per_epoch, 4),
        memory=memory,
        seconds=seconds,
        evaluation_seconds=evaluating,
        images_per_second=batch / max(1e-9, per_step),
        measured=gpu is None,
        source=source,
        notes=tuple(notes),
    )


def calibrate(setup: Setup, memory: Memory) -> tuple[float, float, Memory]:
    """(seconds per step, seconds per evaluated picture, memory) by real steps on a throw-away copy of the run."""
    world = World()
    train = setup.config.train
    stepper = Stepper(setup.model, task_of(train, None, None), train, setup.device, world)
    loader = setup.training_loader(world)
    batch = next(iter(loader.epoch(0)))
    stepper.warm_up(batch, loader.policy.mixup + loader.policy.cutmix > 0, None)
    cuda = setup.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(setup.device)
    shares = token_shares(train)
    times: dict[float | None, list[float]] = {keep: [] for keep in shares}
    began = time.perf_counter()
    number = 0
    # In groups, so that a GPU's queue is full while it is timed; the first group of each kind is still slow and is left out.
    while time.perf_counter() - began < CALIBRATION or min(map(len, times.values())) < 3:
        group = 10 if cuda else 1
        for keep, found in times.items():
            start = time.perf_counter()
            for batch in _endless(loader, number, group):
                stepper.step(batch, 1e-3, keep)
                number += 1
            stepper.wait()
            found.append((time.perf_counter() - start) / group)
    if cuda:
        peak = torch.cuda.max_memory_allocated(setup.device)
        memory = dataclasses.replace(memory, step=max(0, peak - memory.total + memory.step))
    per_step = sum(share * statistics.median(times[keep][1:]) for keep, share in shares.items())
    per_picture = 0.0
    if len(setup.data.validation):
        few = setup.evaluation_loader(setup.data.validation.first(min(256, len(setup.data.validation)), 0), world)
        evaluate(setup.model, few, forward=stepper.logits, precision=stepper.precision())
        start = time.perf_counter()
        evaluate(setup.model, few, forward=stepper.logits, precision=stepper.precision())
        per_picture = (time.perf_counter() - start) / len(few.split)
    return per_step, per_picture, memory


def _endless(loader: Any, number: int, count: int) -> Any:
    """`count` batches from step `number` on, over the ends of epochs."""
    while count > 0:
        epoch, start = divmod(number, len(loader))
        for batch in loader.epoch(epoch, start):
            if count == 0:
                return
            yield batch
            number, count = number + 1, count - 1


def efficiency(width: int) -> float:
    """Share of the peak that a ViT of this width reaches in training."""
    low = max((row for row in EFFICIENCY if row[0] <= width), default=EFFICIENCY[0])
    high = min((row for row in EFFICIENCY if row[0] >= width), default=EFFICIENCY[-1])
    if low[0] == high[0]:
        return low[1]
    share = math.log(width / low[0]) / math.log(high[0] / low[0])
    return low[1] + share * (high[1] - low[1])


def _token_share(config: RunConfig) -> float:
    """Mean cost of a step when patches are left out early, relative to all patches (their number counts about linearly)."""
    return sum(share * (keep or 1.0) for keep, share in token_shares(config.train).items())


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
