"""How fast a ViT is here, beside the same one of other libraries: every contestant in turn, round after round, in one run.

A ratio is taken within a round, so that what slows the machine slows both sides. One whose spread (10 to 90 % of the rounds) reaches
across 1 says nothing, and is not given.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitral.base.device import describe_machine, pick_device
from vitral.base.errors import UsageError
from vitral.base.progress import progress
from vitral.base.text import NOTHING, byte_size, few, table
from vitral.build import build, create
from vitral.config import ModelConfig, TrainConfig
from vitral.cost.eight_bits import AnsweringInFp8
from vitral.cost.flops import WHOLE, vit_flops
from vitral.cost.memory import PeakMemory
from vitral.cost.precision import WORTH, Answering, autocast, dtype_of, has_bf16, worth_bf16
from vitral.cost.time import GPUS
from vitral.data.loader import Batch
from vitral.kernels.fp8 import in_eight_bits, need_eight_bits
from vitral.kernels.replay import replayed
from vitral.look.rollout import rollout
from vitral.look.watch import watch
from vitral.study.peers import PEERS, Peer, plain, roll_out
from vitral.study.turns import Action, in_turn, ratio_of, tidy
from vitral.train.parallel import World
from vitral.train.steps import Stepper
from vitral.train.tasks import task_of

OURS = "vitral"
ACTIONS = ("training step", "inference", "inference of one", "all attention maps", "rollout of one")
LOOKS: dict[str, dict[str, str]] = {"class row / forward pass": {"rows": "class"}, "all maps / forward pass": {}}
"""Of ours alone: what looking costs beside a pass that keeps nothing."""
BATCHES = {"cuda": (256, 64), "cpu": (8, 4)}
"""Images of a training step and of large inference, and of attention maps, which are as large as many images."""
START = """import time; began = time.process_time()
import resource, torch
{build}
with torch.inference_mode():
    model(torch.zeros(1, {channels}, {height}, {width}))
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"""


@dataclass(frozen=True)
class Row:
    action: str
    mode: Literal["eager", "compiled"]
    contestant: str
    seconds: float
    """Median over the rounds; of the start: the best, in CPU seconds."""
    images: int
    ratio: float | None = None
    """Its time over ours, median of the rounds: above 1, ours is faster. None: ours itself."""
    interval: tuple[float, float] | None = None
    """10 to 90 % of the rounds."""
    memory: int | None = None
    """Bytes at the worst moment, weights and optimizer included (GPU); of the start: of the process."""
    share_of_peak: float | None = None

    @property
    def told(self) -> bool:
        """Whether the ratio's spread is smaller than what it shows."""
        return self.interval is not None and not self.interval[0] <= 1 <= self.interval[1]


@dataclass(frozen=True)
class Bench:
    model: str
    machine: dict[str, Any]
    device: str
    """cpu, cuda …: where it was measured; the machine may have more."""
    rounds: int
    versions: dict[str, str]
    """Of the other libraries."""
    peak: float
    """FLOP/s: a GPU's by its data sheet, a CPU's (or an unknown GPU's) by a large product timed here."""
    rows: tuple[Row, ...]
    looking: dict[str, tuple[float, float, float]]
    """Ours: median, 10 and 90 % of what looking costs beside a plain pass."""
    absent: dict[str, str]
    """Contestants that were not measured, and why."""
    precision: str = "auto"
    """Of our inference."""
    same_in_bf16: tuple[int, int] | None = None
    """Of fp8: images with the same answer in bf16, and how many there were."""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "rows": [{**asdict(row), "told": row.told} for row in self.rows]}

    def text(self) -> str:
        names = [OURS, *(peer.name for peer in PEERS if peer.name not in self.absent)]
        kinds = list(dict.fromkeys((row.action, row.mode, row.images) for row in self.rows))
        lines = []
        for action, mode, images in kinds:
            found = {row.contestant: row for row in self.rows if (row.action, row.mode) == (action, mode)}
            ours = found.get(OURS)
            share = f"{ours.share_of_peak:.0%}" if ours and ours.share_of_peak else NOTHING
            memory = byte_size(ours.memory) if ours and ours.memory else NOTHING
            lines.append([action, mode, str(images), *(_cell(found.get(name)) for name in names), share, memory])
        parts = [table(lines, ["", "", "images", *names, "of peak", "memory"], "llr")]
        parts += [f"{name}: {middle:.2f} × ({low:.2f} to {high:.2f})" for name, (middle, low, high) in self.looking.items()]
        parts += [f"{name} is absent: {why}" for name, why in self.absent.items()]
        parts.append("× : its time over ours, within a round; ≈ : the rounds differ by more than the two do")
        if self.same_in_bf16 is not None:
            same, compared = self.same_in_bf16
            parts.append(
                f"inference: ours in fp8, the others in bf16; fp8: the same answer as bf16 on {same:,} of {compared:,} images of noise"
            )
        elif self.device == "cuda":
            parts.append("inference of one: ours as a recorded CUDA graph where it is eager, as vitral.predict replays it")
        if self.device == "cpu":
            parts.append("inference on a CPU that is quicker with bf16: ours in bf16, as vitral eval; the others, and the peak, in fp32")
        return "\n".join(parts)


def _cell(row: Row | None) -> str:
    if row is None:
        return NOTHING
    took = f"{row.seconds * 1e3:,.3g} ms" if row.seconds < 1 else f"{row.seconds:,.3g} s"
    return took if row.ratio is None else f"{took} ({f'{row.ratio:.2f} ×' if row.told else '≈'})"


def bench(
    model: str = "ti/16",
    *,
    device: str = "auto",
    batch: int | None = None,
    rounds: int = 7,
    compiled: bool | None = None,
    peers: Sequence[str] | None = None,
    actions: Sequence[str] = ACTIONS,
    precision: Literal["auto", "fp8"] = "auto",
    start_up: bool = True,
    quiet: bool = False,
    **changes: Any,
) -> Bench:
    """Measure a named model (`vitral.models()`; `changes`: fields of its config) beside those of `peers` (None: all that are there).

    `compiled` None: on a GPU. `batch`: images of a training step and of large inference. `actions`: fewer of `ACTIONS`.
    `precision` fp8 (Ada, Hopper and later): our inference in fp8, the others' in bf16 as always.
    """
    place = pick_device(device)
    with torch.device("meta"):
        config = create(model, **changes).config
    if not plain(config):
        raise UsageError(f"{model} is no plain ViT, so that there is nothing to measure it beside", "use ti/16, s/16, b/16, l/16 …")
    if rounds < 2:
        raise UsageError(f"{rounds} round has no spread", "use at least 2")
    if unknown := next((action for action in actions if action not in ACTIONS), None):
        raise UsageError(f"unknown action {unknown!r}", f"use {', '.join(ACTIONS)}")
    if precision == "fp8":
        need_eight_bits(place)
    chosen, absent = _present(peers)
    large, watched = BATCHES["cuda" if place.type == "cuda" else "cpu"]
    large = batch or large
    peak = _peak(place)
    modes: tuple[Literal["eager", "compiled"], ...] = (
        ("eager", "compiled") if compiled or (compiled is None and place.type == "cuda") else ("eager",)
    )
    inference = partial(_inference, precision=precision)
    stages = [
        *(("training step", mode, large, _training, WHOLE) for mode in modes),
        *(("inference", mode, large, inference, 1.0) for mode in modes),
        *(("inference of one", mode, 1, inference, 1.0) for mode in modes),
        ("all attention maps", "eager", watched, _capture, None),
        ("rollout of one", "eager", 1, _rollout, None),
    ]
    stages = [stage for stage in stages if stage[0] in actions]
    rows: list[Row] = []
    with progress("Measuring", len(stages) + 1 + start_up, quiet) as bar:
        for action, mode, images, make, passes in stages:
            made = _made(lambda peer, images=images, make=make, mode=mode: make(peer, config, place, images, mode), chosen, place)
            absent |= {f"{name} ({action}, {mode})": why for name, why in made.failed.items()}
            flops = None if passes is None else tuple(passes * each for each in _flops(config, place, action))
            rows += _rows(action, mode, images, made, place, rounds, flops, peak)
            del made
            tidy(place)
            bar.advance(1)
        looking = _looking(config, place, watched, rounds)
        bar.advance(1)
        if start_up:
            rows += _start(config, chosen, min(rounds, 3))
            bar.advance(1)
    versions = {peer.name: _version(peer.name) for peer in chosen}
    told = ", ".join(f"{name} {value}" for name, value in changes.items())
    named = f"{model} with {told}" if told else model
    same = _same_in_bf16(config, place, large) if precision == "fp8" else None
    return Bench(named, describe_machine(), place.type, rounds, versions, peak, tuple(rows), looking, absent, precision, same)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # a folder on the path, without what an installer writes
        return "unknown"


def _present(names: Sequence[str] | None) -> tuple[list[Peer], dict[str, str]]:
    known = [peer.name for peer in PEERS]
    if names is not None and (unknown := next((name for name in names if name not in known), None)):
        raise UsageError(f"unknown peer {unknown!r}", f"use {', '.join(known)}")
    wanted = [peer for peer in PEERS if names is None or peer.name in names]
    absent = {name: "not asked for" for name in known if names is not None and name not in names}
    there = []
    for peer in wanted:
        try:
            importlib.import_module(peer.package)
        except ModuleNotFoundError as error:
            absent[peer.name] = "not installed" if error.name == peer.package else f"it needs {error.name}, which is not installed"
        except Exception as error:  # what it needs may be there in another version
            absent[peer.name] = f"it cannot be imported: {_one_line(error)}"
        else:
            there.append(peer)
    return there, absent


@dataclass
class _Made:
    """Contestants, ready for their turns; and those that cannot."""

    actions: dict[str, Action]
    memory: dict[str, int]
    failed: dict[str, str]


def _made(make: Callable[[Peer | None], Action | None], peers: Sequence[Peer], place: torch.device) -> _Made:
    """One action for each contestant, run twice, which also compiles it."""
    made = _Made({}, {}, {})
    for peer in (None, *peers):
        name = OURS if peer is None else peer.name
        before = torch.cuda.memory_allocated(place) if place.type == "cuda" else 0  # of those that wait already
        peak = PeakMemory(place) if place.type == "cuda" else None
        try:
            action = make(peer)
            if action is not None:
                action()
                action()
                made.actions[name] = action
                made.memory |= {name: peak.bytes() - before} if peak else {}
        except Exception as error:
            if peer is None:
                raise
            made.failed[name] = _one_line(error)
    return made


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {few(str(error).splitlines(), 1)}"


def _rows(
    action: str, mode: Any, images: int, made: _Made, place: torch.device, rounds: int, flops: tuple[float, ...] | None, peak: float
) -> list[Row]:
    """`flops`: of an image by us and by the others."""
    times = in_turn(made.actions, place, rounds)
    rows = []
    for name, found in times.items():
        seconds = float(np.median(found))
        ratio, interval = (None, None) if name == OURS else ratio_of(found, times[OURS])
        share = flops[name != OURS] * images / seconds / peak if flops else None
        rows.append(Row(action, mode, name, seconds, images, ratio, interval, made.memory.get(name), share))
    return rows


def _flops(config: ModelConfig, place: torch.device, action: str) -> tuple[int, int]:
    """Of one forward pass by us and by the others. Ours leaves the patches of the last block unmade, which no head reads: on a GPU, and in
    bf16 on a CPU (see `ViT.summarise`), in which a CPU answers but does not learn."""
    whole = vit_flops(config).total
    spared = place.type == "cuda" or (place.type == "cpu" and action != "training step" and has_bf16(place) and whole >= WORTH)
    return vit_flops(config, config.prefix).total if spared else whole, whole


# ---- what is timed ----------------------------------------------------------------------------------------------------------------


def _images(config: ModelConfig, place: torch.device, count: int) -> Tensor:
    return torch.randn(count, config.channels, *config.image_size, generator=torch.Generator().manual_seed(0)).to(place)


def _training(peer: Peer | None, config: ModelConfig, place: torch.device, count: int, mode: str) -> Action:
    """Ours as `vitral train` takes a step; the others with fused AdamW, and bf16 where a GPU has it."""
    images, labels = _images(config, place, count), torch.arange(count, device=place) % config.classes
    if peer is None:
        train = TrainConfig(batch_size=count, optimizer="adamw", compile="yes" if mode == "compiled" else "no", device=str(place))
        stepper = Stepper(build(config).to(place), task_of(train), train, place, World())
        batch = Batch(images, labels, None, None, torch.arange(count))
        stepper.warm_up(batch, False, None)
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


def _inference(peer: Peer | None, config: ModelConfig, place: torch.device, count: int, mode: str, precision: str = "auto") -> Action:
    """As `vitral eval` and the others' users run it: bf16 on a GPU that has it; on a CPU, ours in bf16 where its answers agree."""
    images = _images(config, place, count)
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


def _same_in_bf16(config: ModelConfig, place: torch.device, count: int) -> tuple[int, int]:
    """Untrained weights and noise, whose answers are near ties: the least that fp8 agrees with bf16."""
    model, images = build(config).to(place).eval(), _images(config, place, count)
    answer = AnsweringInFp8(model, place, [images])
    with torch.inference_mode():
        answer(images)
    return answer.same, answer.compared


def _capture(peer: Peer | None, config: ModelConfig, place: torch.device, count: int, _: str) -> Action | None:
    images = _images(config, place, count)
    if peer is None:
        model = build(config).to(place).eval()
        return _looked(lambda: watch(model, images), place)
    if peer.capture is None:
        return None
    capture = peer.capture(config, place)
    return _looked(lambda: capture(images), place)


def _rollout(peer: Peer | None, config: ModelConfig, place: torch.device, count: int, _: str) -> Action | None:
    images = _images(config, place, count)
    if peer is None:
        model = build(config).to(place).eval()
        return _looked(lambda: rollout(watch(model, images)), place)
    if peer.capture is None:
        return None
    capture = peer.capture(config, place)
    return _looked(lambda: roll_out(capture(images)), place)


def _looked(look: Callable[[], Any], place: torch.device) -> Action:
    """In the precision of training and inference, and without gradients."""
    dtype = dtype_of("auto", place)

    def action() -> None:
        with torch.no_grad(), autocast(dtype, place):
            look()

    return action


def _looking(config: ModelConfig, place: torch.device, count: int, rounds: int) -> dict[str, tuple[float, float, float]]:
    """A pass that keeps nothing beside passes that keep the class token's row, or everything."""
    model, images = build(config).to(place).eval(), _images(config, place, count)
    dtype = dtype_of("auto", place)

    def kept(**options: Any) -> Action:
        def look() -> None:
            with torch.no_grad(), autocast(dtype, place):
                watch(model, images, **options) if options != {"plain": True} else model(images)

        return look

    actions = {"plain": kept(plain=True), **{name: kept(**options) for name, options in LOOKS.items()}}
    for action in actions.values():
        action()
    times = in_turn(actions, place, rounds)
    found = {name: ratio_of(times[name], times["plain"]) for name in LOOKS}
    return {name: (middle, *interval) for name, (middle, interval) in found.items()}


def _start(config: ModelConfig, peers: Sequence[Peer], rounds: int) -> list[Row]:
    """A process of its own that imports the library, builds the model and shows it one image, on the CPU."""
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
    best = {name: min(pairs) for name, pairs in found.items() if pairs}
    rows = []
    for name, (seconds, memory) in best.items():
        pairs = [(theirs[0], ours[0]) for theirs, ours in zip(found[name], found[OURS], strict=False)]
        ratio, interval = (None, None) if name == OURS else ratio_of(*zip(*pairs, strict=True))
        rows.append(Row("start, to the first answer (CPU seconds)", "eager", name, seconds, 1, ratio, interval, memory))
    return rows


def _peak(place: torch.device) -> float:
    """FLOP/s that this machine can do at best."""
    kind = torch.cuda.get_device_name(place).lower() if place.type == "cuda" else ""
    if known := next((gpu.peak for name, gpu in GPUS.items() if name in kind), None):
        return known
    side = 4096 if place.type == "cuda" else 1024
    left = torch.randn(side, side, device=place, dtype=dtype_of("auto", place))
    times = in_turn({OURS: lambda: left @ left}, place, 6)
    return 2 * side**3 / min(times[OURS])
