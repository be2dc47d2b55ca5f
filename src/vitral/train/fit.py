"""fit(): from what is asked for to a finished run. A new run begins; one that was stopped is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.data import Dataset

from vitral.base.device import pick_device, using_threads
from vitral.base.errors import DataError, UsageError
from vitral.base.layout import STATE
from vitral.base.progress import say
from vitral.base.text import NOTHING, html, table
from vitral.config import RunConfig
from vitral.data.sources.torch_dataset import open_own
from vitral.model.classifier import Classifier
from vitral.run.folder import Asked, RunFolder, train_on
from vitral.run.journal import check_installed
from vitral.run.resolve import on_machine
from vitral.run.times import Times, process_start
from vitral.train import advice
from vitral.train.engine import Engine
from vitral.train.parallel import World
from vitral.train.prepare import Own, Setup, name_own, prepare, prepare_again
from vitral.train.probe import start_head
from vitral.train.state import Slots
from vitral.train.tasks import task_for


@dataclass(frozen=True, repr=False)
class Run:
    """A finished training."""

    path: Path
    metrics: list[dict[str, Any]]
    model: Classifier
    rebuilt: Any = None
    """Of a masked autoencoder: what it was shown, what it made of it, what it was; three arrays."""

    @property
    def test(self) -> dict[str, Any]:
        """The last line: accuracy and loss on the test split."""
        return self.metrics[-1]

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {len(self.metrics)} lines of metrics)"

    def _repr_html_(self) -> str:
        """In a notebook: how each split ended, then the model."""
        last = {row["split"]: row for row in self.metrics if "split" in row}
        keys = [key for key in ("epoch", "accuracy", "loss", "seconds") if any(key in row for row in last.values())]
        lines = [[split, *(f"{row[key]:.6g}" if key in row else NOTHING for key in keys)] for split, row in last.items()]
        return html(f"{self!r}\n{table(lines, ['split', *keys], 'lr')}") + html(repr(self.model))


def fit(
    config: RunConfig,
    out: str | Path | None = None,
    resume: bool | Literal["auto"] = False,
    quiet: bool = False,
    *,
    model: nn.Module | None = None,
    data: Dataset[Any] | Mapping[str, Dataset[Any]] | None = None,
    run: str | None = None,
    command: str | None = None,
) -> Run:
    """Train what `config` asks for into the folder `out` (runs/NAME), or resume it; `resume="auto"`: whichever is to be done.

    `model`: start from a copy of this one (its head is replaced where the data has other classes), or train a module of your own that
    makes logits of images. `data`: learn from this torch Dataset of (image, label), or from a dict of them: train and, where you have them,
    validation and test. `run` and `command` are written down: the named run it began as, and what was typed.
    """
    times = Times(process_start() if command is not None else None)
    if not isinstance(config, RunConfig):
        asked = repr(config) if isinstance(config, str) else f"a {type(config).__name__}"
        raise UsageError(f"fit takes a RunConfig, not {asked}", "make one: vitral.presets.run(NAME)")
    mode: Literal["no", "yes", "auto"] = "auto" if resume == "auto" else "yes" if resume else "no"
    own = Own(model, open_own(data) if data is not None else None)
    config = name_own(config, own)
    check_installed(config.train)
    world = World(config.train.strategy, config.train.device)
    quiet = quiet or not world.main
    try:
        device = _device(config, world)
        folder = RunFolder(out) if out is not None else RunFolder.newest(config.name)
        if mode == "yes" or (mode == "auto" and folder.exists):
            return _resume_from(folder, config, own, device, world, quiet, times)
        return begin(Asked(config, run or config.name, command), out, own, device, world, quiet, times)
    finally:
        world.close()


def begin(
    asked: Asked, out: str | Path | None, own: Own, device: torch.device, world: World, quiet: bool = False, times: Times | None = None
) -> Run:
    """A new run, in the folder `out` or in runs/NAME."""
    RunFolder.check_free(out)  # before anything is loaded
    world.barrier()  # every process has looked before process 0 writes
    setup = prepare(asked.config, device, own, world.size)
    _advise(setup, quiet)
    # Of two that start at once, one is refused before it reads features.
    folder = RunFolder.reserve(out, asked.config.name) if world.main else None
    try:
        with using_threads(setup.config.train.threads):
            engine = _untrained_engine(setup, world, quiet, times)
            if folder is not None:  # only now: a run that is refused must leave no folder that looks like a training
                folder.begin(asked, setup.config, setup.model.origin)
            path = world.broadcast(str(folder.path) if folder else None)
            folder = folder or RunFolder(path)
            if world.main:
                folder.write_seen(setup.data.seen())
            trained, rebuilt = engine.run(folder)
            return Run(folder.path, folder.metrics, trained, rebuilt)
    finally:
        if folder is not None:
            folder.close()


def _resume_from(
    folder: RunFolder, config: RunConfig, own: Own, device: torch.device, world: World, quiet: bool = False, times: Times | None = None
) -> Run:
    """Continue the run in `folder` from its last state; what may not change of `config` must be as it began."""
    if not folder.exists:
        raise UsageError(f"{folder.path} holds no training to go on with", "check --out, or leave --resume out to start one")
    settled = folder.resumable(config)  # refused before anything is claimed or loaded
    try:
        if world.main:
            folder.claim()
        world.barrier()
        if folder.finished:
            if not quiet:
                say(f"{folder.path} is finished: nothing to do; {train_on(folder.path, '10')}")
            return Run(folder.path, folder.metrics, folder.model())
        has_state = Slots(folder.path / STATE, world).current is not None
        if has_state:
            setup = _from_state(folder, settled, device, own)
        else:
            setup = _from_nothing(folder, config, settled, device, own, world.size, quiet)
        _advise(setup, quiet)
        with using_threads(setup.config.train.threads):
            if has_state:
                engine = Engine(setup, task_for(setup, quiet), world, quiet, times)
            else:
                engine = _untrained_engine(setup, world, quiet, times)
                if world.main:
                    folder.write_seen(setup.data.seen())
            trained, rebuilt = engine.run(folder, resumed=has_state)
            return Run(folder.path, folder.metrics, trained, rebuilt)
    finally:
        folder.close()


def _device(config: RunConfig, world: World) -> torch.device:
    device = pick_device(config.train.device)
    if device.type == "mps" and world.many:
        raise UsageError("several processes cannot share Apple's GPU", "use --device cpu, or start one process")
    return torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" and world.many else device


def _advise(setup: Setup, quiet: bool) -> None:
    for line in () if quiet else advice.before(setup):
        say(f"note: {line}")


def _untrained_engine(setup: Setup, world: World, quiet: bool, times: Times | None) -> Engine:
    """The loop of a run that has learnt nothing yet: its head may have to start as a probe."""
    if setup.config.train.head_start != "as-is":
        start_head(setup, quiet)
    return Engine(setup, task_for(setup, quiet), world, quiet, times)


def _from_nothing(
    folder: RunFolder, config: RunConfig, settled: RunConfig, device: torch.device, own: Own, processes: int, quiet: bool
) -> Setup:
    """A run that ended before its first state was written has learnt nothing: it begins again."""
    if folder.metrics:
        raise DataError(f"{folder.path} holds no state to go on from", "start a new run with --out")
    setup = prepare(config, device, own, processes)
    if setup.config != on_machine(settled, device):
        raise DataError(f"{folder.path} was begun with other data or weights than there are now", "start a new run with --out")
    if not quiet:
        say(f"{folder.path} had not begun to learn: it starts from the beginning")
    return setup


def _from_state(folder: RunFolder, settled: RunConfig, device: torch.device, own: Own) -> Setup:
    """What a run goes on with that has learnt already: the same images as then, or it is refused."""
    setup = prepare_again(settled, folder.origin, device, own)
    began = folder.environment.get("data", {})
    for split, count in (("train", len(setup.data.train)), ("validation", len(setup.data.validation))):
        if began.get(split, count) != count:  # what it validates on might be what it has learnt
            raise DataError(
                f"{folder.path} was begun with {began[split]} pictures ({split}), {setup.data.name} has {count} now",
                "put the pictures back as they were, or start a new run with --out",
            )
    before = began.get("fingerprint")
    for split, now in setup.data.fingerprints().items():
        if isinstance(before, dict) and before.get(split, now) != now:
            what = "names, sizes, classes or content" if setup.config.data.fingerprint == "content" else "names, sizes or classes"
            raise DataError(
                f"the {split} pictures of {setup.data.name} are others than when {folder.path} began ({what})",
                "put them back as they were, or start a new run with --out",
            )
    return setup
