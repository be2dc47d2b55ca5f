"""fit(): from what is asked for to a finished run: settle, claim the folder, run the loop; or go on with a run that was stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.data import Dataset

from vitral.base.device import pick_device, using_threads
from vitral.base.errors import DataError, UsageError
from vitral.base.layout import STATE
from vitral.base.progress import say
from vitral.config import RunConfig
from vitral.data.sources.torch_dataset import open_own
from vitral.run.folder import Asked, RunFolder, train_on
from vitral.run.journal import check_installed
from vitral.run.times import Times, process_start
from vitral.train import advice
from vitral.train.engine import Engine
from vitral.train.finished import Run
from vitral.train.parallel import World
from vitral.train.prepare import Given, Setup, prepare, prepare_again
from vitral.train.probe import start_head
from vitral.train.state import Slots


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
    """Train what `config` asks for into the folder `out` (runs/NAME), or go on with it; `resume="auto"`: whichever is to be done.

    `model`: start from a copy of this one (its head is replaced where the data has other classes), or train a module of your own that
    makes logits of images. `data`: learn from this torch Dataset of (image, label), or from a dict of them: train and, where you have them,
    validation and test. `run` and `command` are written down: the named run it began as, and what was typed.
    """
    times = Times(process_start() if command is not None else None)
    if not isinstance(config, RunConfig):
        asked = repr(config) if isinstance(config, str) else f"a {type(config).__name__}"
        raise UsageError(f"fit takes a RunConfig, not {asked}", "make one: vitral.presets.run(NAME)")
    given = Given(model, open_own(data) if data is not None else None)
    config = given.named_in(config)
    check_installed(config.train)
    world = World(config.train.strategy, config.train.device)
    quiet = quiet or not world.main
    folder = None
    try:
        device = pick_device(config.train.device)
        if device.type == "cuda" and world.many:
            device = torch.device("cuda", torch.cuda.current_device())
        if device.type == "mps" and world.many:
            raise UsageError("several processes cannot share Apple's GPU", "use --device cpu, or start one process")
        going_on = False
        if resume == "auto":
            resume = _place(config, out).exists
        if resume:
            folder = _reopen(config, out, world)
            if folder.finished:
                return _finished(folder, quiet)
            going_on = Slots(folder.path / STATE, world).current is not None
            setup = _again(folder, config, device, given) if going_on else _begun(folder, config, device, given, world.size, quiet)
        else:
            RunFolder.check_free(out)  # before anything is loaded
            world.barrier()  # every process has looked before process 0 writes
            setup = prepare(config, device, given, world.size)
        if not quiet:
            for line in advice.before(setup):
                say(f"note: {line}")
        if folder is None and world.main:  # of two that start at once, one is refused before it reads features
            folder = RunFolder.reserve(out, config.name)
        with using_threads(setup.threads):
            if setup.config.train.head_start != "as-is" and not going_on:
                start_head(setup, quiet)
            engine = Engine(setup, world, quiet, times)
            if folder is None or not resume:  # only now: a run that is refused must leave no folder that looks like a training
                if folder is not None:
                    folder.begin(Asked(config, run or config.name, command), setup.config, setup.model.origin)
                path = world.tell(str(folder.path) if folder else None)
                folder = folder or RunFolder(path)
            if world.main and not going_on:
                folder.write_seen(setup.data.seen())
            return engine.run(folder, going_on)
    finally:
        if folder is not None:
            folder.close()
        world.close()


def _place(config: RunConfig, out: str | Path | None) -> RunFolder:
    return RunFolder(out) if out is not None else RunFolder.newest(config.name)


def _reopen(config: RunConfig, out: str | Path | None, world: World) -> RunFolder:
    """The run to go on with; it belongs to process 0 from here on."""
    folder = _place(config, out)
    if not folder.exists:
        raise UsageError(f"{folder.path} holds no training to go on with", "check --out, or leave --resume out to start one")
    folder.going_on(config)  # refused before anything is claimed or loaded
    if world.main:
        folder.claim()
    world.barrier()
    return folder


def _finished(folder: RunFolder, quiet: bool) -> Run:
    if not quiet:
        say(f"{folder.path} is finished: nothing to do; {train_on(folder.path, '10')}")
    return Run(folder.path, folder.metrics, folder.model())


def _begun(folder: RunFolder, config: RunConfig, device: torch.device, given: Given, processes: int, quiet: bool) -> Setup:
    """A run that ended before its first state was written has learnt nothing: it begins again."""
    if folder.metrics:
        raise DataError(f"{folder.path} holds no state to go on from", "start a new run with --out")
    setup = prepare(config, device, given, processes)
    if setup.config != folder.going_on(config):
        raise DataError(f"{folder.path} was begun with other data or weights than there are now", "start a new run with --out")
    if not quiet:
        say(f"{folder.path} had not begun to learn: it starts from the beginning")
    return setup


def _again(folder: RunFolder, config: RunConfig, device: torch.device, given: Given) -> Setup:
    setup = prepare_again(folder.going_on(config), folder.origin, device, given)
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
