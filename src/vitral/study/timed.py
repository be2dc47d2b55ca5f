"""What a bench times: a training step, inference, attention maps, rollout and the start of a process, by us and by other libraries.

Each is an `Action` without arguments, made for one contestant (`peer` None: ours), so that contestants can take turns.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitral.build import build
from vitral.config import ModelConfig, TrainConfig
from vitral.cost.eight_bits import AnsweringInFp8
from vitral.cost.precision import Answering, autocast, dtype_of, has_bf16, worth_bf16
from vitral.cost.time import GPUS
from vitral.data.loader import Batch
from vitral.kernels.fp8 import in_eight_bits
from vitral.kernels.graphs import replayed
from vitral.look.rollout import rollout
from vitral.look.watch import watch
from vitral.study.peers import Peer, roll_out
from vitral.study.turns import Action, in_turn, ratio_of
from vitral.train.parallel import World
from vitral.train.steps import Stepper
from vitral.train.tasks import task_of

OURS = "vitral"
LOOKS: dict[str, dict[str, str]] = {"class row / forward pass": {"rows": "class"}, "all maps / forward pass": {}}
"""Of ours alone: what looking costs beside a pass that keeps nothing."""
START = """import time; began = time.process_time()
import resource, torch
{build}
with torch.inference_mode():
    model(torch.zeros(1, {channels}, {height}, {width}))
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"""


def images_of(config: ModelConfig, place: torch.device, count: int) -> Tensor:
    return torch.randn(count, config.channels, *config.image_size, generator=torch.Generator().manual_seed(0)).to(place)


def training(peer: Peer | None, config: ModelConfig, place: torch.device, count: int, mode: str) -> Action:
    """Ours as `vitral train` takes a step; the others with fused AdamW, and bf16 where a GPU has it."""
    images, labels = images_of(config, place, count), torch.arange(count, device=place) % config.classes
    if peer is None:
        train = TrainConfig(batch_size=count, optimizer="adamw", compile="yes" if mode == "compiled" else "no", device=str(place))
        stepper = Stepper(build(config).to(place), task_of(train), train, place, World())
        batch = Batch(images, labels, None, None, torch.arange(count))
        stepper.warm_up(batch, False)
        return lambda: stepper.step(batch, 1e-3, None)
    module = peer.build(config).to(place).train()
    model: Any = torch.compile(module) if mode == "compiled" else module
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=place.type == "cuda")

    def step() -> None:
        with autocast(dtype_of("auto", place), place):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def inference(peer: Peer | None, config: ModelConfig, place: torch.device, count: int, mode: str, precision: str = "auto") -> Action:
    """As `vitral eval` and the others' users run it: bf16 on a GPU that has it; on a CPU, ours in bf16 where its answers agree."""
    images = images_of(config, place, count)
    module = (build(config) if peer is None else peer.build(config)).to(place).eval()
    if peer is None and precision == "fp8":
        module = in_eight_bits(module, [images])
    model: Any = torch.compile(module) if mode == "compiled" else replayed(module) if peer is None else module
    if peer is None and place.type == "cpu":
        # Random weights answer with near ties, so that nothing is asked of a first batch here.
        model = Answering(model, place, "bf16" if has_bf16(place) and worth_bf16(module) else "fp32")

    def infer() -> None:
        with torch.inference_mode(), autocast(dtype_of("auto", place), place):
            model(images)

    return infer


def same_in_bf16(config: ModelConfig, place: torch.device, count: int) -> tuple[int, int]:
    """Untrained weights and noise, whose answers are near ties: the least that fp8 agrees with bf16."""
    model, images = build(config).to(place).eval(), images_of(config, place, count)
    answer = AnsweringInFp8(model, place, [images])
    with torch.inference_mode():
        answer(images)
    return answer.same, answer.compared


def capture(peer: Peer | None, config: ModelConfig, place: torch.device, count: int, _: str) -> Action | None:
    images = images_of(config, place, count)
    if peer is None:
        model = build(config).to(place).eval()
        return looked(lambda: watch(model, images), place)
    if peer.capture is None:
        return None
    capture = peer.capture(config, place)
    return looked(lambda: capture(images), place)


def rolled_out(peer: Peer | None, config: ModelConfig, place: torch.device, count: int, _: str) -> Action | None:
    images = images_of(config, place, count)
    if peer is None:
        model = build(config).to(place).eval()
        return looked(lambda: rollout(watch(model, images)), place)
    if peer.capture is None:
        return None
    capture = peer.capture(config, place)
    return looked(lambda: roll_out(capture(images)), place)


def looked(look: Callable[[], Any], place: torch.device) -> Action:
    """In the precision of training and inference, and without gradients."""
    dtype = dtype_of("auto", place)

    def action() -> None:
        with torch.no_grad(), autocast(dtype, place):
            look()

    return action


def looking(config: ModelConfig, place: torch.device, count: int, rounds: int) -> dict[str, tuple[float, float, float]]:
    """A pass that keeps nothing beside passes that keep the class token's row, or everything."""
    model, images = build(config).to(place).eval(), images_of(config, place, count)
    looks: dict[str, Callable[[], Any]] = {name: partial(watch, model, images, **options) for name, options in LOOKS.items()}
    actions = {name: looked(look, place) for name, look in {"plain": partial(model, images), **looks}.items()}
    for action in actions.values():
        action()
    times = in_turn(actions, place, rounds)
    found = {name: ratio_of(times[name], times["plain"]) for name in LOOKS}
    return {name: (middle, *interval) for name, (middle, interval) in found.items()}


def starts(config: ModelConfig, peers: Sequence[Peer], rounds: int) -> dict[str, list[tuple[float, int]]]:
    """CPU seconds and bytes, round by round, of a process of its own that imports the library, builds the model and shows it one image."""
    own = "from vitral.build import build; from vitral.config import ModelConfig, from_dict"
    model = f"from_dict(ModelConfig, {asdict(config)!r}, 'bench')"
    builds = {OURS: f"{own}; model = build({model}).eval()"}
    for peer in peers:
        call = f"from vitral.study import peers; model = peers.{peer.build.__name__}({model}).eval()"
        builds[peer.name] = f"import {peer.package}; from vitral.config import ModelConfig, from_dict; {call}"
    height, width = config.image_size
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in builds}
    for _ in range(rounds):
        for name, lines in builds.items():
            code = START.format(build=lines, channels=config.channels, height=height, width=width)
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
            if done.returncode == 0:
                seconds, memory = done.stdout.split()[-2:]
                found[name].append((float(seconds), int(memory)))
    return found


def peak(place: torch.device) -> float:
    """FLOP/s that this machine can do at best."""
    kind = torch.cuda.get_device_name(place).lower() if place.type == "cuda" else ""
    if known := next((gpu.peak for name, gpu in GPUS.items() if name in kind), None):
        return known
    side = 4096 if place.type == "cuda" else 1024
    left = torch.randn(side, side, device=place, dtype=dtype_of("auto", place))
    times = in_turn({OURS: lambda: left @ left}, place, 6)
    return 2 * side**3 / min(times[OURS])
