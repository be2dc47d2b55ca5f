"""What a training or a study will take, timed by real steps before it is spent."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from vitral.base.device import pick_device, using_threads
from vitral.base.errors import UsageError
from vitral.base.files import read_json
from vitral.base.layout import CELL, CELLS, TUNING
from vitral.base.progress import Progress, progress, say, track
from vitral.base.text import duration
from vitral.cost.memory import PeakMemory
from vitral.data.loader import Batch
from vitral.study.fight.experiment import EVALUATIONS, Cell, Experiment, final_cells, tuning_cells
from vitral.train.evaluate import evaluate_loader
from vitral.train.parallel import World
from vitral.train.prepare import Setup, held_out_loader, prepare, training_loader
from vitral.train.schedule import token_shares
from vitral.train.steps import Stepper
from vitral.train.tasks import task_for

_CELL_START = 1.5
"""Seconds to open data, build a model and write its folder."""
_TEST = 2
"""The test split stays closed: it is taken to be as large as so many validation splits."""
GROUP = {"cuda": 10}
"""Steps timed together, so that a GPU's queue is full while it is timed."""
_LEAST = 2
"""Timed steps, beside the first."""
_CPU_BATCH = 32
"""A CPU's time per image hardly changes with the batch: a small one tells soon. A GPU is timed with the study's own."""
_SHOWN = 256
"""Validation images that are timed, at most."""
PATIENCE = 20.0
"""Seconds that steps are timed for, about, however slow they are: on a CPU by smaller batches."""
FEWEST = 4
"""Images of the smallest batch that is timed: what compares views of several images needs some."""
_SMALL_LR = 1e-3
"""Share of the peak learning rate in steps that are only timed: the weights must stay sane."""


@dataclass(frozen=True)
class Timing:
    """Seconds."""

    step: float
    """Of one training step."""
    image: float
    """Of one evaluated image."""
    compiling: float = 0.0
    peak: int | None = None
    """Most bytes in use on a GPU."""
    computing: float | None = None
    """Of one training step whose batch is there already, where pictures are read while training."""
    spread: tuple[float, float] | None = None
    """Nearly the quickest and nearly the slowest of the timed steps (10 and 90 %); None: none was timed."""
    timed_batch: int | None = None
    """Images of the steps that were timed, where they were fewer than the run's."""


class Seconds(NamedTuple):
    """Of one action that was timed several times."""

    median: float
    low: float
    """Tenth of the times below it."""
    high: float
    """Tenth of the times above it."""


def time_run(setup: Setup, seconds: float = 0.0, quiet: bool = True) -> Timing:
    """Time a run's own steps (its batches, augmentation, task and optimizer) and evaluation; the model in `setup` is used up."""
    world, train, data = World(), setup.config.train, setup.data
    stepper = Stepper(setup.model, task_for(setup), train, setup.device, world)
    with progress("Timing steps", quiet=quiet) as bar:
        size, first = _timed_batch(setup, stepper, bar)
        loader = training_loader(setup, World(), batch_size=size, build_cache=False)
        compiling = stepper.warm_up(next(iter(loader.epoch(0))), loader.policy.mixup + loader.policy.cutmix > 0)
        peak = PeakMemory(setup.device) if setup.device.type != "cpu" else None
        step = time_steps(stepper, _counted(itertools.chain.from_iterable(map(loader.epoch, itertools.count())), bar), seconds)
        most, image, computing = peak.bytes() if peak else None, 0.0, None
        if loader.stream is not None:
            batch = next(iter(loader.epoch(0)))
            computing = time_steps(stepper, _counted(itertools.repeat(batch), bar), seconds / 4).median
        if len(data.validation):
            # An image is evaluated in a third of the time that learning from it takes, or less.
            enough = _SHOWN if stepper.device.type != "cpu" else min(_SHOWN, max(1, int(PATIENCE / 2 * size / max(first, 1e-6))))
            few = held_out_loader(setup, data.validation.balanced_subset(min(enough, len(data.validation)), 0), world)
            once = median_seconds(
                lambda: evaluate_loader(setup.model, few, forward=stepper.logits, precision=stepper.precision()), stepper.wait, least=1
            )
            image = once / len(few.split)
    larger = train.batch_size / size  # on a CPU an image takes as long in a large batch as in a small one
    return Timing(
        step.median * larger,
        image,
        compiling,
        most,
        None if computing is None else computing * larger,
        (step.low * larger, step.high * larger),
        size if larger > 1 else None,
    )


def _timed_batch(setup: Setup, stepper: Stepper, bar: Progress) -> tuple[int, float]:
    """How many images the timed steps have, so that all of them take about `PATIENCE`; and seconds of a first, small step."""
    train = setup.config.train
    if stepper.device.type != "cpu" or stepper.compiled:
        return train.batch_size, 0.0
    fewest = train.accumulate * -(-FEWEST // train.accumulate)
    small = min(train.batch_size, fewest)
    loader, shares = training_loader(setup, World(), batch_size=small, build_cache=False), token_shares(train)
    began = time.perf_counter()
    stepper.step(next(iter(loader.epoch(0))), _SMALL_LR, next(iter(shares)))
    first = time.perf_counter() - began
    bar.advance()
    steps = (_LEAST + 1) * len(shares) * (1 if loader.stream is None else 2)
    if first * steps * train.batch_size / small <= PATIENCE:
        return train.batch_size, first * train.batch_size / small
    size = max(small, min(train.batch_size, int(PATIENCE * small / (first * steps)) // train.accumulate * train.accumulate))
    return size, first * size / small


def _counted(batches: Iterator[Batch], bar: Progress) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        bar.advance()


def time_steps(stepper: Stepper, batches: Iterator[Batch], seconds: float = 0.0, least: int = _LEAST) -> Seconds:
    """One training step, by `seconds` of them; where patches are left out for a part of a run, the mean over the run."""
    shares, group = token_shares(stepper.config), GROUP.get(stepper.device.type, 1)
    times = []
    for keep, share in shares.items():
        step = lambda keep=keep: stepper.step(next(batches), _SMALL_LR, keep)  # noqa: E731
        times.append((share, time_action(step, stepper.wait, seconds / len(shares), least, group)))
    return Seconds(*(sum(share * each[index] for share, each in times) for index in range(3)))


def median_seconds(action: Callable[[], object], wait: Callable[[], None], *, least: int = 2, group: int = 1) -> float:
    return time_action(action, wait, 0.0, least, group).median


def time_action(action: Callable[[], object], wait: Callable[[], None], seconds: float, least: int, group: int) -> Seconds:
    """`action`, timed in groups; the first group also loads kernels and fills caches, and is left out."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) <= least or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        for _ in range(group):
            action()
        wait()
        times.append((time.perf_counter() - start) / group)
    low, high = np.quantile(times[1:], (0.1, 0.9))
    return Seconds(statistics.median(times[1:]), float(low), float(high))


# ---- a study -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Forecast:
    cells: int
    seconds: float
    """Wall-clock, with `parallel` cells at a time."""
    per_model: dict[str, float]
    """Seconds of one after the other."""

    def __str__(self) -> str:
        if not self.cells:
            return "nothing is left to run"
        slowest = max(self.per_model, key=lambda name: self.per_model[name])
        most = f"most of it {slowest}: {duration(self.per_model[slowest])} one after the other"
        return f"{self.cells} cells, about {duration(self.seconds)} ({most})"

    def check(self, hours: float | None) -> None:
        if hours is not None and self.seconds > hours * 3600:
            raise UsageError(
                f"the study would take about {duration(self.seconds)}, more than --max-hours {hours:g}",
                "use a smaller budget, or fewer models, sizes or seeds",
            )


def together(parts: Mapping[str, Forecast]) -> Forecast:
    """Of several studies one after the other; the words of each stand before its models."""
    per_model = {f"{words}{name}": seconds for words, part in parts.items() for name, seconds in part.per_model.items()}
    return Forecast(sum(part.cells for part in parts.values()), sum(part.seconds for part in parts.values()), per_model)


def expect(foretell: Callable[[], Forecast], max_hours: float | None, agree: Callable[[Forecast], None] | None = None) -> None:
    """Say what a study will take, where somebody wants to know before it is spent, and refuse what is too long."""
    if max_hours is None and agree is None:
        return
    expected = foretell()
    say(f"forecast: {expected}")
    expected.check(max_hours)
    if agree is not None:
        agree(expected)


def forecast(study: Experiment, parallel: int = 1, quiet: bool = False, folder: str | Path | None = None) -> Forecast:
    """Time a few training steps of each contender on this machine. What is finished in the study's `folder` is left out."""
    device = pick_device(study.contenders[0].run.train.device)
    cells = left(study, folder)
    per_model: dict[str, float] = {}
    for name in track(list(dict.fromkeys(cell.contender for cell in cells)), "Forecasting", quiet=quiet):
        own = [cell for cell in cells if cell.contender == name]
        timing, images, evaluated = _time_cell(own[-1], device)
        evaluation = timing.compiling + evaluated * timing.image
        per_model[name] = sum(_CELL_START + evaluation + _training(study, cell, timing.step / images) for cell in own)
    return Forecast(len(cells), sum(per_model.values()) / max(1, min(parallel, len(cells))), per_model)


def _time_cell(cell: Cell, device: torch.device) -> tuple[Timing, int, int]:
    """How fast it is, the images of a timed step, and the images that the whole cell evaluates."""
    size = min(_CPU_BATCH, cell.run.train.batch_size) if device.type == "cpu" else cell.run.train.batch_size
    setup = prepare(dataclasses.replace(cell.run, train=dataclasses.replace(cell.run.train, batch_size=size)), device)
    images = min(size, len(setup.data.train))
    with using_threads(setup.config.train.threads):
        return time_run(setup), images, (EVALUATIONS + _TEST) * len(setup.data.validation)


def left(study: Experiment, folder: str | Path | None) -> list[Cell]:
    """The cells that are yet to run. Their names contain the learning rate, which tuning decides."""
    lrs = {contender.name: contender.lrs[0] for contender in study.contenders}
    starts = {contender.name: contender.starts[0] for contender in study.contenders if contender.starts}
    if folder is not None and (Path(folder) / TUNING).is_file():
        chosen = read_json(Path(folder) / TUNING)
        lrs |= {name: entry["chosen"] for name, entry in chosen.items() if name in lrs}
        starts |= {name: entry["start"] for name, entry in chosen.items() if "start" in entry}
    cells = tuning_cells(study) + final_cells(study, lrs, starts)
    return [cell for cell in cells if folder is None or not (Path(folder) / CELLS / cell.name / CELL).is_file()]


def _training(study: Experiment, cell: Cell, seconds: float) -> float:
    if cell.shots or not cell.run.train.epochs:
        return 0.0  # features are read, as an evaluation reads them
    samples = study.budget.times(cell.share).samples(cell.training_flops, cell.size)
    return study.budget.amount * cell.share if samples is None else samples * seconds
