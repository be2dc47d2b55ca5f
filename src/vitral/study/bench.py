"""How fast a ViT is on this machine: a training step, inference, attention maps, rollout and the start of a process.

An `Action` does one of them once. `in_turn` times several actions round after round, so that whatever slows the machine slows all of them.
`benchmarks/peers.py` times other libraries with the same functions.
"""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from vitral.base.device import describe_machine, pick_device, wait
from vitral.base.errors import UsageError
from vitral.base.progress import progress
from vitral.base.text import NOTHING, byte_size, percent, table
from vitral.build import build, create
from vitral.config import ModelConfig, TrainConfig
from vitral.cost.flops import WHOLE, vit_flops
from vitral.cost.memory import PeakMemory
from vitral.cost.precision import WORTH, Answering, autocast, dtype_of, has_bf16, worth_bf16
from vitral.cost.time import GPUS
from vitral.data.loader import Batch
from vitral.kernels.graphs import replayed
from vitral.look.rollout import rollout
from vitral.look.watch import watch
from vitral.train.parallel import World
from vitral.train.steps import Stepper
from vitral.train.tasks import task_of

Action = Callable[[], object]
Mode = Literal["eager", "compiled"]
LOOKING, START = "looking", "start"
ACTIONS = ("training step", "inference", "inference of one", "all attention maps", "rollout of one", LOOKING, START)
START_ROW = "start, to the first answer (CPU seconds)"
OWN_START = "from vitral.build import build; from vitral.config import ModelConfig, from_dict; model = build({config}).eval()"
_BATCHES = {"cuda": (256, 64), "cpu": (8, 4)}
"""Images of a training step and of large inference, and of attention maps, which are as large as many images."""
_LOOKS: dict[str, dict[str, str]] = {"class row / forward pass": {"rows": "class"}, "all maps / forward pass": {}}
_TURN = 0.05
"""Seconds that a turn lasts at least: a shorter action is repeated within its turn."""
_START = """import time; began = time.process_time()
import resource, torch
{build}
with torch.inference_mode():
    model(torch.zeros(1, {channels}, {height}, {width}))
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"""


@dataclass(frozen=True)
class Row:
    action: str
    mode: Mode
    seconds: float
    """Median over the rounds; of the start: the best, in CPU seconds."""
    images: int
    spread: tuple[float, float]
    """10 to 90 % of the rounds, in seconds."""
    memory: int | None = None
    """Bytes at the peak, weights and optimizer included (GPU); of the start: of the process."""
    share_of_peak: float | None = None


@dataclass(frozen=True)
class Bench:
    model: str
    machine: dict[str, Any]
    device: str
    """cpu, cuda …: where it was measured; the machine may have more."""
    rounds: int
    peak: float
    """FLOP/s: a GPU's by its data sheet, a CPU's (or an unknown GPU's) by a large product timed here."""
    rows: tuple[Row, ...]
    looking: dict[str, tuple[float, float, float]]
    """Time of a watched pass over that of a plain one: median, 10 and 90 % of the rounds."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        lines = []
        for row in self.rows:
            share = percent(row.share_of_peak) if row.share_of_peak else NOTHING
            memory = byte_size(row.memory) if row.memory else NOTHING
            low, high = (seconds_text(value) for value in row.spread)
            lines.append([row.action, row.mode, str(row.images), seconds_text(row.seconds), f"{low} to {high}", share, memory])
        parts = [table(lines, ["", "", "images", "time", "10 to 90 % of the rounds", "of peak", "memory"], "llr")]
        parts += [f"{name}: {middle:.2f} × ({low:.2f} to {high:.2f})" for name, (middle, low, high) in self.looking.items()]
        if self.device == "cuda":
            parts.append("inference of one, eager: a recorded CUDA graph, as vitral.predict replays it")
        if self.device == "cpu":
            parts.append("inference on a CPU that is quicker with bf16: in bf16, as vitral eval; the peak in fp32")
        return "\n".join(parts)


class Stage(NamedTuple):
    """One line of the table: how to make its action, and what that action computes."""

    action: str
    mode: Mode
    images: int
    make: Callable[[ModelConfig, torch.device, int, str], Action]
    passes: float | None
    """Forward passes that it amounts to; None: its share of the peak is not shown."""


def bench(
    model: str = "ti/16",
    *,
    device: str = "auto",
    batch: int | None = None,
    rounds: int = 7,
    compiled: bool | None = None,
    actions: Sequence[str] = ACTIONS,
    quiet: bool = False,
    **changes: Any,
) -> Bench:
    """Measure a named model (`vitral.models()`; `changes`: fields of its config) on this machine.

    `compiled` None: on a GPU. `batch`: images of a training step and of large inference. `actions`: fewer of `ACTIONS`.
    """
    target = pick_device(device)
    config = config_of(model, rounds, actions, changes)
    if config.family != "vit" or config.pool != "class":
        raise UsageError(f"{model} is no ViT with a class token", "use ti/16, s/16, b/16, l/16 …")
    best = peak(target)
    rows: list[Row] = []
    looking: dict[str, tuple[float, float, float]] = {}
    chosen = stages(target, batch, compiled, actions)
    with progress("Measuring", len(chosen) + (LOOKING in actions) + (START in actions), quiet) as bar:
        for stage in chosen:
            action, memory = warmed_up(lambda stage=stage: stage.make(config, target, stage.images, stage.mode), target)
            times = in_turn({"": action}, target, rounds)[""]
            seconds = float(np.median(times))
            share = None
            if stage.passes is not None:
                share = stage.passes * own_flops(config, target, stage.action) * stage.images / seconds / best
            rows.append(Row(stage.action, stage.mode, seconds, stage.images, _spread(times), memory, share))
            del action
            tidy(target)
            bar.advance(1)
        if LOOKING in actions:
            looking = looking_ratios(config, target, batches(target)[1], rounds)
            bar.advance(1)
        if START in actions:
            if started := [each for _ in range(min(rounds, 3)) if (each := start_once(OWN_START, config))]:
                seconds, memory = min(started)
                rows.append(Row(START_ROW, "eager", seconds, 1, _spread([each[0] for each in started]), memory))
            bar.advance(1)
    return Bench(name_with(model, changes), describe_machine(), target.type, rounds, best, tuple(rows), looking)


def config_of(model: str, rounds: int, actions: Sequence[str], changes: Mapping[str, Any]) -> ModelConfig:
    """The model's config; refuses what cannot be measured."""
    with torch.device("meta"):
        config = create(model, **changes).config
    if rounds < 2:
        raise UsageError(f"{rounds} round has no spread", "use at least 2")
    if unknown := next((action for action in actions if action not in ACTIONS), None):
        raise UsageError(f"unknown action {unknown!r}", f"use {', '.join(ACTIONS)}")
    return config


def name_with(model: str, changes: Mapping[str, Any]) -> str:
    """`ti/16 with depth 2`."""
    text = ", ".join(f"{name} {value}" for name, value in changes.items())
    return f"{model} with {text}" if text else model


def batches(device: torch.device) -> tuple[int, int]:
    return _BATCHES["cuda" if device.type == "cuda" else "cpu"]


def stages(device: torch.device, batch: int | None, compiled: bool | None, actions: Sequence[str]) -> list[Stage]:
    """What is measured, in order; looking and the start come after it."""
    large, watched = batches(device)
    large = batch or large
    both = compiled or (compiled is None and device.type == "cuda")
    modes: tuple[Mode, ...] = ("eager", "compiled") if both else ("eager",)
    every = [
        *(Stage("training step", mode, large, training, WHOLE) for mode in modes),
        *(Stage("inference", mode, large, inference, 1.0) for mode in modes),
        *(Stage("inference of one", mode, 1, inference, 1.0) for mode in modes),
        Stage("all attention maps", "eager", watched, _attention_maps, None),
        Stage("rollout of one", "eager", 1, _rollout, None),
    ]
    return [stage for stage in every if stage.action in actions]


def warmed_up(make: Callable[[], Action], device: torch.device) -> tuple[Action, int | None]:
    """The action, run twice (which also compiles it), and its peak memory on a GPU."""
    peak_memory = PeakMemory(device) if device.type != "cpu" else None
    before = peak_memory.bytes() if peak_memory else 0  # of actions that exist already
    action = make()
    action()
    action()
    return action, peak_memory.bytes() - before if peak_memory else None


def in_turn(actions: Mapping[str, Action], device: torch.device, rounds: int) -> dict[str, list[float]]:
    """Seconds of each action in each round; a round before them finds out how often a turn repeats it."""
    repeats = {name: max(1, math.ceil(_TURN / _seconds_of(action, device))) for name, action in actions.items()}
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            times[name].append(_seconds_of(action, device, repeats[name]))
    return times


def _seconds_of(action: Action, device: torch.device, repeats: int = 1) -> float:
    """Seconds per repeat. Each repeat is waited for."""
    wait(device)
    start = time.perf_counter()
    for _ in range(repeats):
        action()
        wait(device)
    return (time.perf_counter() - start) / repeats


def ratio_of(times: Sequence[float], others: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Median and 10 to 90 % of the ratios within a round."""
    low, middle, high = np.quantile(np.divide(times, others), (0.1, 0.5, 0.9))
    return float(middle), (float(low), float(high))


def _spread(times: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(times, (0.1, 0.9))
    return float(low), float(high)


def tidy(device: torch.device) -> None:
    """Free models that nothing holds any more, and what the compiler stores of them."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def random_images(config: ModelConfig, device: torch.device, count: int) -> torch.Tensor:
    return torch.randn(count, config.channels, *config.image_size, generator=torch.Generator().manual_seed(0)).to(device)


def training(config: ModelConfig, device: torch.device, count: int, mode: str) -> Action:
    """A step as `vitral train` takes it."""
    images, labels = random_images(config, device, count), torch.arange(count, device=device) % config.classes
    train = TrainConfig(batch_size=count, optimizer="adamw", compile="yes" if mode == "compiled" else "no", device=str(device))
    stepper = Stepper(build(config).to(device), task_of(train), train, device, World())
    batch = Batch(images, labels, None, None, torch.arange(count))
    stepper.warm_up(batch, False)
    return lambda: stepper.step(batch, 1e-3, None)


def inference(config: ModelConfig, device: torch.device, count: int, mode: str) -> Action:
    """As `vitral eval` answers: bf16 on a GPU that has it, and on a CPU where its answers agree."""
    module = build(config).to(device).eval()
    model: Any = torch.compile(module) if mode == "compiled" else replayed(module)
    if device.type == "cpu":
        # Random weights answer with near ties, so that nothing is asked of a first batch here.
        model = Answering(model, device, "bf16" if has_bf16(device) and worth_bf16(module) else "fp32")
    return inferring(model, random_images(config, device, count))


def inferring(model: Any, images: torch.Tensor) -> Action:
    def infer() -> None:
        with torch.inference_mode(), autocast(dtype_of("auto", images.device), images.device):
            model(images)

    return infer


def _attention_maps(config: ModelConfig, device: torch.device, count: int, _: str) -> Action:
    model, images = build(config).to(device).eval(), random_images(config, device, count)
    return without_gradients(lambda: watch(model, images), device)


def _rollout(config: ModelConfig, device: torch.device, count: int, _: str) -> Action:
    model, images = build(config).to(device).eval(), random_images(config, device, count)
    return without_gradients(lambda: rollout(watch(model, images)), device)


def without_gradients(look: Callable[[], Any], device: torch.device) -> Action:
    """In the precision of training and inference."""
    dtype = dtype_of("auto", device)

    def action() -> None:
        with torch.no_grad(), autocast(dtype, device):
            look()

    return action


def looking_ratios(config: ModelConfig, device: torch.device, count: int, rounds: int) -> dict[str, tuple[float, float, float]]:
    """Compare a pass that records nothing to passes that record the class token's row, or all maps."""
    model, images = build(config).to(device).eval(), random_images(config, device, count)
    looks: dict[str, Callable[[], Any]] = {name: partial(watch, model, images, **options) for name, options in _LOOKS.items()}
    actions = {name: without_gradients(look, device) for name, look in {"plain": partial(model, images), **looks}.items()}
    for action in actions.values():
        action()
    times = in_turn(actions, device, rounds)
    ratios = {name: ratio_of(times[name], times["plain"]) for name in _LOOKS}
    return {name: (middle, *interval) for name, (middle, interval) in ratios.items()}


def start_once(lines: str, config: ModelConfig) -> tuple[float, int] | None:
    """CPU seconds and bytes of a process that runs `lines` ({config} is its config), which build `model`, and shows it one image.

    None: it failed. Windows, for example, counts no such bytes.
    """
    height, width = config.image_size
    made = lines.format(config=f"from_dict(ModelConfig, {asdict(config)!r}, 'bench')")
    code = _START.format(build=made, channels=config.channels, height=height, width=width)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    if done.returncode:
        return None
    seconds, memory = done.stdout.split()[-2:]
    return float(seconds), int(memory)


def peak(device: torch.device) -> float:
    """FLOP/s that this machine can do at best."""
    name = torch.cuda.get_device_name(device).lower() if device.type == "cuda" else ""
    if listed := next((gpu.peak for kind, gpu in GPUS.items() if kind in name), None):
        return listed
    side = 4096 if device.type == "cuda" else 1024
    left = torch.randn(side, side, device=device, dtype=dtype_of("auto", device))
    return 2 * side**3 / min(in_turn({"": lambda: left @ left}, device, 6)[""])


def own_flops(config: ModelConfig, device: torch.device, action: str) -> int:
    """FLOPs of a forward pass. The patches of the last block, which no head reads, are left out on a GPU, and in bf16 on a CPU
    (see `ViT.summarise`). A CPU predicts in bf16 but does not train in it."""
    whole = vit_flops(config).total
    predicts_in_bf16 = device.type == "cpu" and action != "training step" and has_bf16(device) and whole >= WORTH
    return vit_flops(config, config.prefix).total if device.type == "cuda" or predicts_in_bf16 else whole


def seconds_text(seconds: float) -> str:
    return f"{seconds * 1e3:,.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"
