"""What a training will cost, before anything is spent: parameters, FLOPs, memory, steps, and time.

Time is measured on this machine by a few real steps, or estimated for a named GPU from its peak and the share of it that
ViTs of this width reach.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vitral.base.device import pick_device, using_threads
from vitral.base.progress import say
from vitral.base.text import NOTHING, byte_size, duration, percent, short
from vitral.config import RunConfig
from vitral.cost.flops import forward_flops, learning_passes
from vitral.cost.memory import Memory
from vitral.cost.precision import DTYPES, dtype_of, is_compiled
from vitral.cost.time import LAUNCH, efficiency, find_gpu
from vitral.data.images.augment import Policy
from vitral.data.loader import even_batches, placement_of
from vitral.data.sources.placeholder import stand_in
from vitral.data.stream import seconds_to_read
from vitral.model.classifier import Classifier
from vitral.study.fight.forecast import Timing, time_run
from vitral.train import advice
from vitral.train.parallel import World
from vitral.train.prepare import Own, policy_of, prepare, training_split
from vitral.train.schedule import snapshot_steps, token_shares
from vitral.train.steps import flops_without_labels, run_memory
from vitral.train.tasks.unlabelled import LOOKS
from vitral.weights.checkpoint import save

SECONDS = 4.0
"""Of real steps."""
BUSY = 0.5
"""Share of the cores that others may keep busy before it is said."""
_WAITING = 0.2
"""Share of a step spent reading from which it is said."""
_UNSTEADY = 1.5
"""Slow steps per quick step from which the timings are called unsteady."""


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
    seconds_range: tuple[float, float]
    """The same by the quick and by the slow ones of the timed steps; an estimate: twice the same."""
    evaluation_seconds: float
    """All validations; the test at the end is not in it."""
    images_per_second: float
    measured: bool
    """True: by real steps on this machine; False: estimated from a table."""
    source: str
    notes: tuple[str, ...]
    reading_per_second: float | None = None
    """Pictures that the processes of this run can read on this machine; None: they are on the device, or in memory, before it begins."""
    computing_per_second: float | None = None
    """Pictures that the model can learn from when they are there."""
    snapshots: int = 0
    """How many snapshots a film can use."""
    snapshot_bytes: int = 0
    """Of all of them, on the disk."""
    snapshot_seconds: float = 0.0
    """Writing them all, by one that was written here."""

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "memory": {**dataclasses.asdict(self.memory), "total": self.memory.total}}

    def text(self) -> str:
        how = "measured by real steps" if self.measured else "an estimate"
        learn = f" ({self.trained_parameters:,} learn)" if self.trained_parameters != self.parameters else ""
        parts = {"EMA" if name == "ema" else name: size for name, size in dataclasses.asdict(self.memory).items() if size}
        rows = [
            ("parameters", f"{self.parameters:,}{learn}"),
            ("tokens", f"{self.tokens or NOTHING}"),
            ("FLOPs", f"{short(self.forward_flops)} per picture forward, {short(self.training_flops)} for the run"),
            ("memory", f"{byte_size(self.memory.total)} ({', '.join(f'{name} {byte_size(size)}' for name, size in parts.items())})"),
            ("steps", f"{self.steps:,} of {self.pictures:,} pictures, {self.epochs:g} epochs"),
            ("time", f"{self._training()} training + {duration(self.evaluation_seconds)} evaluating ({how})"),
            ("speed", f"{self.images_per_second:,.0f} pictures/s"),
            *([("reading", self._reading())] if self.reading_per_second else []),
            ("on", f"{self.device}: {self.source}"),
        ]
        if self.snapshots:
            size, took = byte_size(self.snapshot_bytes), duration(self.snapshot_seconds)
            rows.append(("snapshots", f"{self.snapshots} take {size} on the disk and {took} to write; then: vitral film RUN"))
        return "\n".join([f"plan of {self.run}", *(f"  {name:<11}{value}" for name, value in rows)])

    def _reading(self) -> str:
        assert self.reading_per_second is not None and self.computing_per_second is not None
        return f"{self.reading_per_second:,.0f} pictures/s can be read here, the model takes {self.computing_per_second:,.0f}/s"

    def _training(self) -> str:
        low, high = map(duration, self.seconds_range)
        return duration(self.seconds) if low == high else f"{duration(self.seconds)} ({low} to {high})"


def held_up(reading: float, computing: float, workers: int, cache: int | None, cores: int) -> str:
    """A note when a run waits for its pictures. reading: seconds of one by one process; computing: of one by the model."""
    if workers == 0:
        share = reading / (reading + computing)
        waits = f"reading pictures is {percent(share, 0)} of a step, as one process does both" if share > _WAITING else ""
    else:
        rate, takes = min(workers, cores) / reading, 1 / computing
        waits = f"the run is decode-bound: {rate:,.0f} pictures/s are read, the model takes {takes:,.0f}/s" if rate < takes else ""
    if not waits:
        return ""
    enough = max(1, math.ceil(reading / computing))
    more = [f"--workers {min(enough, cores)}"] if workers < min(enough, cores) else []
    more += ["--cache 256 (vitral train --help)"] if cache is None else []
    return f"{waits}; use {' or '.join(more)}" if more else f"{waits}; more cores, or smaller pictures, would help"


def busy(load: float, cores: int, spread: tuple[float, float]) -> str:
    """A note when others use this machine: `load` before anything was timed, `spread` of the timed steps."""
    low, high = spread
    reasons = [f"a load of {load:.1f} on {cores} cores before it was timed"] if load > BUSY * cores else []
    reasons += [f"its timings differ by a factor of {high / low:.1f}"] if low and high / low > _UNSTEADY else []
    return f"this machine is busy: {', '.join(reasons)}; alone the run takes less" if reasons else ""


def plan(config: RunConfig, gpu: str | None = None) -> Plan:
    """What `config` costs on this machine, or on a GPU of `GPUS`. Notes are said at once: a slow run is measured slowly."""
    named = find_gpu(gpu) if gpu else None
    own, precision = Own(source=stand_in(config.data)), config.train.precision  # nothing is fetched only to be planned
    setup = prepare(config, torch.device("cpu") if named else pick_device(config.train.device), own, planned=True)
    device = torch.device("cuda") if named else setup.device
    config, data = setup.config, setup.data
    advised = advice.before(setup)
    for note in advised:
        say(f"note: {note}")
    notes = [*data.notes, *advised]  # those on the data were said when it was opened
    train, model = config.train, config.model
    per_epoch, batch = even_batches(len(data.train), train.batch_size, train.accumulate)
    # There is no such GPU here to ask: all of them have half precision.
    dtype = dtype_of(train.precision, device) if named is None else DTYPES["bf16" if precision == "auto" else precision]
    stored = sum(
        split.bytes
        for split, policy in ((data.train, policy_of(setup)), (data.validation, Policy("none")))
        if placement_of(split, policy, device, config.data.placement) == "device"
    )
    memory = run_memory(config, max(1, batch // train.accumulate), dtype, is_compiled(train.compile, device), stored)
    flops = forward_flops(model)
    if config.pretrain is not None:
        flops_per_step = batch * flops_without_labels(model, config.pretrain, train)
    else:
        # Where patches are left out early in a run, their number counts about linearly.
        seen = sum(share * (keep or 1.0) for keep, share in token_shares(train).items())
        flops_per_step = batch * learning_passes(setup.model, (model.channels, *model.image_size)) * flops * seen
    if named:
        speed = named.peak * efficiency(model.width)
        timing = Timing(max(flops_per_step / speed, LAUNCH), flops / speed)
        source = f"{named.peak / 1e12:.0f} TFLOP/s × {percent(efficiency(model.width), 0)}, the share that ViTs of this width reach"
    else:
        say(f"measuring steps of {batch:,} pictures on this machine, about a minute on a slow one")
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        with using_threads(train.threads):
            timing = time_run(setup, SECONDS, quiet=False)
        if note := busy(load, os.cpu_count() or 1, timing.spread or (0.0, 0.0)):
            notes.append(note)
            say(f"note: {note}")
        source = f"{timing.step * 1e3:.3g} ms per step" if timing.step < 1 else f"{timing.step:.3g} s per step"
        if timing.timed_batch is not None:
            source += f", by steps of {timing.timed_batch:,} pictures"
    reading = computing = None
    if placement_of(data.train, policy_of(setup), device, config.data.placement) == "stream":
        cores = os.cpu_count() or 1
        one = seconds_to_read(training_split(setup, World(), build=False), policy_of(setup))
        reading, computing = max(1, min(config.data.workers, cores)) / one, batch / (timing.computing or timing.step)
        if note := held_up(one, 1 / computing, config.data.workers, config.data.cache, cores):
            notes.append(note)
            say(f"note: {note}")
    if timing.peak is not None:
        memory = dataclasses.replace(memory, step=max(0, timing.peak - memory.total + memory.step))
    steps = max(1, round(train.epochs * per_epoch)) if train.epochs else 0
    if train.max_seconds is not None:
        steps = max(1, min(steps, int(train.max_seconds / timing.step)))
    evaluations = max(1, math.ceil(steps / max(1, round(train.evaluate_every * per_epoch))))
    if config.pretrain is not None:
        evaluations = max(evaluations, min(steps, LOOKS))
    if named and memory.total > named.memory * 2**30:
        notes.append(f"{byte_size(memory.total)} do not fit into {named.memory} GiB: raise --accumulate")
        say(f"note: {notes[-1]}")
    snapshots = len(snapshot_steps(train.snapshots, steps))
    every, learning = advice.parameters(setup.model)
    size, seconds = written(setup.model) if snapshots else (0, 0.0)
    return Plan(
        run=config.name,
        device=gpu.lower() if gpu else device.type,
        parameters=every,
        trained_parameters=learning,
        tokens=model.tokens if model.is_transformer else None,
        forward_flops=flops,
        training_flops=flops_per_step * steps,
        pictures=batch,
        steps=steps,
        epochs=round(steps / per_epoch, 4),
        memory=memory,
        seconds=timing.step * steps,
        seconds_range=tuple(each * steps for each in timing.spread or (timing.step, timing.step)),  # type: ignore[arg-type]
        evaluation_seconds=evaluations * max(timing.image * len(data.validation), LAUNCH if named else 0),
        images_per_second=batch / max(1e-9, timing.step),
        measured=named is None,
        source=source,
        notes=tuple(notes),
        reading_per_second=reading,
        computing_per_second=computing,
        snapshots=snapshots,
        snapshot_bytes=snapshots * size,
        snapshot_seconds=snapshots * seconds,
    )


def written(model: Classifier) -> tuple[int, float]:
    """Bytes and seconds of one snapshot, by writing it."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        save(model, Path(folder) / "snapshot")
        seconds = time.perf_counter() - began
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()), seconds
