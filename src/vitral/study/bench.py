"""How fast a ViT is here, beside the same one of other libraries: every contestant in turn, round after round, in one run.

A ratio is taken within a round, so that what slows the machine slows both sides. One whose spread (10 to 90 % of the rounds) reaches
across 1 says nothing, and is not given.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from vitral.base.device import describe_machine, pick_device
from vitral.base.errors import UsageError
from vitral.base.progress import progress
from vitral.base.text import NOTHING, byte_size, few, percent, table
from vitral.build import create
from vitral.config import ModelConfig
from vitral.cost.flops import WHOLE, vit_flops
from vitral.cost.memory import PeakMemory
from vitral.cost.precision import WORTH, has_bf16
from vitral.study import timed
from vitral.study.peers import PEERS, Peer, plain
from vitral.study.timed import OURS
from vitral.study.turns import Action, in_turn, ratio_of, tidy

LOOKING, START = "looking", "start"
ACTIONS = ("training step", "inference", "inference of one", "all attention maps", "rollout of one", LOOKING, START)
NOT_ASKED = "not asked for"
BATCHES = {"cuda": (256, 64), "cpu": (8, 4)}
"""Images of a training step and of large inference, and of attention maps, which are as large as many images."""


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

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "rows": [{**asdict(row), "told": row.told} for row in self.rows]}

    def text(self) -> str:
        names = [OURS, *(peer.name for peer in PEERS if peer.name not in self.absent)]
        kinds = list(dict.fromkeys((row.action, row.mode, row.images) for row in self.rows))
        lines = []
        for action, mode, images in kinds:
            found = {row.contestant: row for row in self.rows if (row.action, row.mode) == (action, mode)}
            ours = found.get(OURS)
            share = percent(ours.share_of_peak) if ours and ours.share_of_peak else NOTHING
            memory = byte_size(ours.memory) if ours and ours.memory else NOTHING
            lines.append([action, mode, str(images), *(_cell(found.get(name)) for name in names), share, memory])
        parts = [table(lines, ["", "", "images", *names, "of peak", "memory"], "llr")]
        parts += [f"{name}: {middle:.2f} × ({low:.2f} to {high:.2f})" for name, (middle, low, high) in self.looking.items()]
        parts += [f"{name} is absent: {why}" for name, why in self.absent.items()]
        parts.append("× : its time over ours, within a round; ≈ : the rounds differ by more than the two do")
        if self.device == "cuda":
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
    after_each: Callable[[Bench], object] = lambda _: None,
    quiet: bool = False,
    **changes: Any,
) -> Bench:
    """Measure a named model (`vitral.models()`; `changes`: fields of its config) beside those of `peers` (None: all that are there).

    `compiled` None: on a GPU. `batch`: images of a training step and of large inference. `actions`: fewer of `ACTIONS`.
    `after_each` is given what is known after each action: compiling takes minutes, and what was measured should outlive what comes
    after it.
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
    chosen, absent = _present(peers)
    large, watched = BATCHES["cuda" if place.type == "cuda" else "cpu"]
    large = batch or large
    peak = timed.peak(place)
    modes: tuple[Literal["eager", "compiled"], ...] = (
        ("eager", "compiled") if compiled or (compiled is None and place.type == "cuda") else ("eager",)
    )
    stages = [
        *(("training step", mode, large, timed.training, WHOLE) for mode in modes),
        *(("inference", mode, large, timed.inference, 1.0) for mode in modes),
        *(("inference of one", mode, 1, timed.inference, 1.0) for mode in modes),
        ("all attention maps", "eager", watched, timed.capture, None),
        ("rollout of one", "eager", 1, timed.rolled_out, None),
    ]
    stages = [stage for stage in stages if stage[0] in actions]
    told = ", ".join(f"{name} {value}" for name, value in changes.items())
    versions = {peer.name: _version(peer.name) for peer in chosen}
    so_far = Bench(f"{model} with {told}" if told else model, describe_machine(), place.type, rounds, versions, peak, (), {}, absent)
    with progress("Measuring", len(stages) + (LOOKING in actions) + (START in actions), quiet) as bar:
        for action, mode, images, make, passes in stages:
            made = _made(lambda peer, images=images, make=make, mode=mode: make(peer, config, place, images, mode), chosen, place)
            failed = {f"{name} ({action}, {mode})": why for name, why in made.failed.items()}
            flops = None if passes is None else tuple(passes * each for each in _flops(config, place, action))
            rows = (*so_far.rows, *_rows(action, mode, images, made, place, rounds, flops, peak))
            so_far = replace(so_far, rows=rows, absent=so_far.absent | failed)
            del made
            tidy(place)
            after_each(so_far)
            bar.advance(1)
        if LOOKING in actions:
            so_far = replace(so_far, looking=timed.looking(config, place, watched, rounds))
            after_each(so_far)
            bar.advance(1)
        if START in actions:
            so_far = replace(so_far, rows=(*so_far.rows, *_start_rows(timed.starts(config, chosen, min(rounds, 3)))))
            after_each(so_far)
            bar.advance(1)
    return so_far


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
    absent = {name: NOT_ASKED for name in known if names is not None and name not in names}
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
        peak = PeakMemory(place) if place.type != "cpu" else None
        before = peak.bytes() if peak else 0  # of those that wait already
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


def _start_rows(found: Mapping[str, Sequence[tuple[float, int]]]) -> list[Row]:
    """The best of each, and ratios round by round."""
    rows = []
    for name, (seconds, memory) in {name: min(pairs) for name, pairs in found.items() if pairs}.items():
        pairs = [(theirs[0], ours[0]) for theirs, ours in zip(found[name], found[OURS], strict=False)]
        ratio, interval = (None, None) if name == OURS else ratio_of(*zip(*pairs, strict=True))
        rows.append(Row("start, to the first answer (CPU seconds)", "eager", name, seconds, 1, ratio, interval, memory))
    return rows
