"""Vitral beside timm, torchvision, transformers and vit-pytorch, size after size, in one file.

    python benchmarks/peers.py [--sizes s/16 b/16 l/16] [--batches 512 256 128] [--peers timm] [--rounds 12] [--quick] [--out peers.json]

Contestants take turns within a run, eager and (on a GPU) compiled. A ratio is taken within a round, so that whatever slows the machine
slows both sides. One whose spread (10 to 90 % of the rounds) reaches across 1 is not shown. A library that is not installed is named
and left out, and so is one that cannot do an action. `--out` takes up what is there already, so that sizes may be measured one command
after the other, and is written after each action. Compiling takes most of the time (12 blocks of a peer about a minute and a half in
all): `--peers`, `--actions` and `--compile no` leave parts out. `--quick`: two blocks of ti/16 at batch 2, to see whether it runs.
`docs/results/speed.md` is made from the files under results/measured (`make results`).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import libraries
import numpy as np
import torch
import torch.nn.functional as F
from libraries import PEERS, Peer

from vitral.base.device import describe_machine, pick_device
from vitral.base.errors import UsageError
from vitral.base.text import NOTHING, byte_size, few, percent, table
from vitral.config import ModelConfig
from vitral.cost.flops import vit_flops
from vitral.cost.precision import autocast, dtype_of
from vitral.study import bench
from vitral.study.bench import ACTIONS, LOOKING, START, START_ROW, Action, Mode, Stage

OURS, NOT_ASKED = "vitral", "not asked for"
SIZES = {"s/16": 512, "b/16": 256, "l/16": 128}
"""With the images of a training step."""
QUICK: dict[str, Any] = {"rounds": 3, "depth": 2}


@dataclass(frozen=True)
class Row:
    action: str
    mode: Mode
    contestant: str
    seconds: float
    """Median over the rounds; of the start: the best, in CPU seconds."""
    images: int
    ratio: float | None = None
    """Its time over ours, median of the rounds: above 1, ours is faster. None: ours itself."""
    interval: tuple[float, float] | None = None
    """10 to 90 % of the rounds."""
    memory: int | None = None
    """Bytes at the peak, weights and optimizer included (GPU); of the start: of the process."""
    share_of_peak: float | None = None

    @property
    def differs(self) -> bool:
        """Whether the ratio's spread is smaller than what it shows."""
        return self.interval is not None and not self.interval[0] <= 1 <= self.interval[1]


@dataclass(frozen=True)
class Comparison:
    model: str
    machine: dict[str, Any]
    device: str
    rounds: int
    versions: dict[str, str]
    """Of the other libraries."""
    peak: float
    """FLOP/s: a GPU's by its data sheet, a CPU's (or an unknown GPU's) by a large product timed here."""
    rows: tuple[Row, ...] = ()
    looking: dict[str, tuple[float, float, float]] | None = None
    """Ours: time of a watched pass over that of a plain one: median, 10 and 90 % of the rounds."""
    absent: dict[str, str] | None = None
    """Contestants that were not measured, and why."""

    def to_dict(self) -> dict[str, Any]:
        """As results/speed_tables.py and the committed records have it."""
        rows = [{**asdict(row), "told": row.differs} for row in self.rows]
        return {**asdict(self), "rows": rows, "looking": self.looking or {}, "absent": self.absent or {}}

    def text(self) -> str:
        absent = self.absent or {}
        names = [OURS, *(peer.name for peer in PEERS if peer.name not in absent)]
        lines = []
        for action, mode, images in dict.fromkeys((row.action, row.mode, row.images) for row in self.rows):
            by_name = {row.contestant: row for row in self.rows if (row.action, row.mode) == (action, mode)}
            ours = by_name.get(OURS)
            share = percent(ours.share_of_peak) if ours and ours.share_of_peak else NOTHING
            memory = byte_size(ours.memory) if ours and ours.memory else NOTHING
            lines.append([action, mode, str(images), *(_time_cell(by_name.get(name)) for name in names), share, memory])
        parts = [table(lines, ["", "", "images", *names, "of peak", "memory"], "llr")]
        parts += [f"{name}: {middle:.2f} × ({low:.2f} to {high:.2f})" for name, (middle, low, high) in (self.looking or {}).items()]
        parts += [f"{name} is absent: {why}" for name, why in absent.items()]
        parts.append("× : its time over ours, within a round; ≈ : the rounds differ by more than the two do")
        if self.device == "cuda":
            parts.append("inference of one: ours as a recorded CUDA graph where it is eager, as vitral.predict replays it")
        if self.device == "cpu":
            parts.append("inference on a CPU that is quicker with bf16: ours in bf16, as vitral eval; the others, and the peak, in fp32")
        return "\n".join(parts)


def _time_cell(row: Row | None) -> str:
    if row is None:
        return NOTHING
    ratio = "" if row.ratio is None else f" ({f'{row.ratio:.2f} ×' if row.differs else '≈'})"
    return bench.seconds_text(row.seconds) + ratio


def compare(
    model: str,
    peers: Sequence[str] | None = None,
    *,
    device: str = "auto",
    batch: int | None = None,
    rounds: int = 12,
    compiled: bool | None = None,
    actions: Sequence[str] = ACTIONS,
    after_each: Callable[[Comparison], object] = lambda _: None,
    **changes: Any,
) -> Comparison:
    """Measure a named model beside those of `peers` (None: all that are installed).

    `after_each` gets the result after each action: compiling takes minutes, and what was measured should outlive what comes after it.
    """
    target = pick_device(device)
    config = bench.config_of(model, rounds, actions, changes)
    if not libraries.plain(config):
        raise UsageError(f"{model} is no plain ViT, so that there is nothing to measure it beside", "use ti/16, s/16, b/16, l/16 …")
    chosen, absent = present(peers)
    versions = {peer.name: _version(peer.name) for peer in chosen}
    best = bench.peak(target)
    so_far = Comparison(bench.name_with(model, changes), describe_machine(), target.type, rounds, versions, best, absent=absent)
    for stage in bench.stages(target, batch, compiled, actions):
        rows, failed = race(stage, config, chosen, target, rounds, best)
        so_far = replace(so_far, rows=(*so_far.rows, *rows), absent={**(so_far.absent or {}), **failed})
        bench.tidy(target)
        after_each(so_far)
    if LOOKING in actions:
        so_far = replace(so_far, looking=bench.looking_ratios(config, target, bench.batches(target)[1], rounds))
        after_each(so_far)
    if START in actions:
        so_far = replace(so_far, rows=(*so_far.rows, *start_rows(starts(config, chosen, min(rounds, 3)))))
        after_each(so_far)
    return so_far


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # a folder on the path, without what an installer writes
        return "unknown"


def present(names: Sequence[str] | None) -> tuple[list[Peer], dict[str, str]]:
    """The libraries that can be imported; and name → why not, of the others."""
    absent = {peer.name: NOT_ASKED for peer in PEERS if names is not None and peer.name not in names}
    importable = []
    for peer in PEERS:
        if peer.name in absent:
            continue
        try:
            importlib.import_module(peer.package)
        except ModuleNotFoundError as error:
            absent[peer.name] = "not installed" if error.name == peer.package else f"it needs {error.name}, which is not installed"
        except Exception as error:  # what it needs may be there in another version
            absent[peer.name] = f"it cannot be imported: {_one_line(error)}"
        else:
            importable.append(peer)
    return importable, absent


def training(peer: Peer, config: ModelConfig, device: torch.device, count: int, mode: str) -> Action:
    """A step with fused AdamW, and bf16 where a GPU has it."""
    images, labels = bench.random_images(config, device, count), torch.arange(count, device=device) % config.classes
    module = peer.build(config).to(device).train()
    model: Any = torch.compile(module) if mode == "compiled" else module
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=device.type == "cuda")

    def step() -> None:
        with autocast(dtype_of("auto", device), device):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def action_of(stage: Stage, peer: Peer, config: ModelConfig, device: torch.device) -> Action:
    """The stage's action as users of the library do it."""
    if stage.action == "training step":
        return training(peer, config, device, stage.images, stage.mode)
    images = bench.random_images(config, device, stage.images)
    if stage.action in ("inference", "inference of one"):
        module = peer.build(config).to(device).eval()
        return bench.inferring(torch.compile(module) if stage.mode == "compiled" else module, images)
    assert peer.capture is not None
    capture = peer.capture(config, device)
    if stage.action == "rollout of one":
        return bench.without_gradients(lambda: libraries.roll_out(capture(images)), device)
    return bench.without_gradients(lambda: capture(images), device)


def race(
    stage: Stage, config: ModelConfig, peers: Sequence[Peer], device: torch.device, rounds: int, peak: float
) -> tuple[list[Row], dict[str, str]]:
    """All contestants in turn; and `NAME (ACTION, MODE)` → why, of each library that failed."""
    own, memory = bench.warmed_up(lambda: stage.make(config, device, stage.images, stage.mode), device)
    actions, memories, failed = {OURS: own}, {OURS: memory}, {}
    for peer in peers:
        if stage.passes is None and peer.capture is None:
            continue
        try:
            make = partial(action_of, stage, peer, config, device)
            actions[peer.name], memories[peer.name] = bench.warmed_up(make, device)
        except Exception as error:
            failed[f"{peer.name} ({stage.action}, {stage.mode})"] = _one_line(error)
    times = bench.in_turn(actions, device, rounds)
    rows = []
    for name, seconds in times.items():
        middle = float(np.median(seconds))
        ratio, interval = (None, None) if name == OURS else bench.ratio_of(seconds, times[OURS])
        share = None
        if stage.passes is not None:
            flops = bench.own_flops(config, device, stage.action) if name == OURS else vit_flops(config).total
            share = stage.passes * flops * stage.images / middle / peak
        rows.append(Row(stage.action, stage.mode, name, middle, stage.images, ratio, interval, memories[name], share))
    return rows, failed


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {few(str(error).splitlines(), 1)}"


def starts(config: ModelConfig, peers: Sequence[Peer], rounds: int) -> dict[str, list[tuple[float, int]]]:
    """CPU seconds and bytes, round by round, of a process that imports the library, builds the model and shows it one image."""
    builds = {OURS: bench.OWN_START}
    for peer in peers:
        path = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import libraries"
        call = f"model = libraries.{peer.build.__name__}({{config}}).eval()"
        builds[peer.name] = f"import {peer.package}; {path}; from vitral.config import ModelConfig, from_dict; {call}"
    measured: dict[str, list[tuple[float, int]]] = {name: [] for name in builds}
    for _ in range(rounds):
        for name, lines in builds.items():
            if once := bench.start_once(lines, config):
                measured[name].append(once)
    return measured


def start_rows(measured: Mapping[str, Sequence[tuple[float, int]]]) -> list[Row]:
    """The best of each, and ratios round by round."""
    rows = []
    for name, (seconds, memory) in {name: min(pairs) for name, pairs in measured.items() if pairs}.items():
        pairs = [(theirs[0], ours[0]) for theirs, ours in zip(measured[name], measured[OURS], strict=False)]
        ratio, interval = (None, None) if name == OURS else bench.ratio_of(*zip(*pairs, strict=True))
        rows.append(Row(START_ROW, "eager", name, seconds, 1, ratio, interval, memory))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+")
    parser.add_argument("--batches", nargs="+", type=int)
    parser.add_argument("--peers", nargs="+", choices=[peer.name for peer in PEERS])
    parser.add_argument("--actions", nargs="+", choices=ACTIONS, default=ACTIONS)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", choices=["auto", "yes", "no"], default="auto")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    sizes = asked.sizes or (["ti/16"] if asked.quick else list(SIZES))
    batches = asked.batches or [2 if asked.quick else SIZES.get(size, 256) for size in sizes]
    if len(batches) != len(sizes):
        parser.error(f"{len(sizes)} sizes and {len(batches)} batches")
    records = {each["model"]: each for each in json.loads(asked.out.read_text())} if asked.out and asked.out.is_file() else {}
    settings = {"rounds": asked.rounds, **(QUICK if asked.quick else {})}
    actions = [action for action in asked.actions if not (asked.quick and action == START)]
    compiled = {"auto": None, "yes": True, "no": False}[asked.compile]

    def save(so_far: Comparison) -> None:
        records[so_far.model] = so_far.to_dict()
        if asked.out:
            asked.out.write_text(json.dumps(list(records.values()), indent=2) + "\n")

    failed = 0
    for size, batch in zip(sizes, batches, strict=True):
        requested = {"device": asked.device, "batch": batch, "actions": actions, "compiled": compiled}
        try:
            result = compare(size, asked.peers, **requested, **settings, after_each=save)
        except Exception as error:  # the sizes after it may do
            failed += 1
            print(f"{size} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            continue
        print(f"{result.model}\n{result.text()}\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
