"""The run folder: the only contract between training and everything after it.

config.json (the whole RunConfig, and the model's origin) · env.json (machine, data, sizes, compile time) · metrics.jsonl ·
model.safetensors · test.json and test.npz (the test split, opened once) · state/ · snapshots/
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vitral.base.device import describe_machine
from vitral.base.errors import DataError, UsageError
from vitral.base.files import read_json, write_json
from vitral.base.origin import Origin
from vitral.base.progress import say
from vitral.build import build
from vitral.config import RunConfig, from_dict, to_dict
from vitral.cost.flops import forward_flops
from vitral.model.classifier import Classifier
from vitral.train.journal import check_installed, read_metrics
from vitral.train.optim import whole
from vitral.train.parallel import World
from vitral.train.prepare import Setup, other_model
from vitral.weights.checkpoint import load_checkpoint, save

if TYPE_CHECKING:
    from vitral.train.engine import Run
    from vitral.train.evaluate import Evaluation
    from vitral.train.steps import Stepper

FREE = {
    "train": ("device", "threads", "compile", "checkpoint_every", "strategy", "tensorboard", "wandb", "accumulate"),
    "data": ("root", "workers", "placement"),
}
"""What a resumed run may change: nothing of it decides what is learnt."""


def named(name: str) -> tuple[Path, Path]:
    """(the newest run of this name, the next free folder): runs/NAME, runs/NAME-2 …"""
    paths = [Path("runs") / name, *(Path("runs") / f"{name}-{number}" for number in range(2, 10_000))]
    free = next(index for index, path in enumerate(paths) if not (path / "config.json").exists())
    return paths[max(0, free - 1)], paths[free]


def choose(config: RunConfig, out: str | Path | None, resume: bool, world: World) -> Path:
    """`out`, or runs/NAME (runs/NAME-2 … when that is taken; the newest of them when going on)."""
    check_installed(config.train)
    if out is not None:
        path = Path(out)
        if not resume and (path / "config.json").exists():
            raise UsageError(f"{path} already holds a training", f"add --resume to go on with it, or choose another folder than {path}")
    else:
        newest, free = named(config.name)
        path = newest if resume else free
    if resume and not (path / "config.json").exists():
        raise UsageError(f"{path} holds no training to go on with", "check --out, or leave --resume out to start one")
    world.barrier()  # every process has looked before process 0 writes
    return path


def finished(path: Path) -> bool:
    """Whether the last thing a run does is done: the model written, and the test line where one is wanted."""
    if not (path / "model.safetensors").exists():
        return False
    metrics = read_metrics(path / "metrics.jsonl")
    return bool(metrics) and (metrics[-1]["split"] == "test" or not read_config(path)[0].train.test)


def reopen(path: Path, quiet: bool = False) -> Run:
    """A finished run, from its folder."""
    from vitral.train.engine import Run

    if not quiet:
        say(f"{path} is finished: nothing to do")
    return Run(path, read_metrics(path / "metrics.jsonl"), load_checkpoint(path))


def begin(path: Path, setup: Setup, world: World) -> None:
    if world.main:
        write_json(path / "config.json", {**to_dict(setup.config), "origin": setup.model.origin.to_dict()})
    world.barrier()


def read_config(path: Path) -> tuple[RunConfig, Origin]:
    """What a run folder says about itself."""
    stored = read_json(path / "config.json")
    origin = Origin.from_dict(stored.pop("origin", {}))
    return from_dict(RunConfig, stored, str(path / "config.json")), origin


def settled(path: Path, asked: RunConfig) -> tuple[RunConfig, Origin]:
    """The config to go on with: as the run began, but for what may change. Anything else that differs is refused by name."""
    stored, origin = read_config(path)
    trained = (path / "model.safetensors").exists()  # only the test is left: how it takes a bad picture changes nothing that was learnt
    for part, names in FREE.items():
        names = (*names, "on_bad_image") if part == "data" and trained else names
        old, new = getattr(stored, part), getattr(asked, part)
        stored = dataclasses.replace(stored, **{part: dataclasses.replace(old, **{name: getattr(new, name) for name in names})})
        for field in dataclasses.fields(old):
            if field.name not in names and getattr(old, field.name) != getattr(new, field.name):
                raise _begun(path, field.name, getattr(old, field.name), getattr(new, field.name))
    if stored.weights != asked.weights:
        raise _begun(path, "weights", stored.weights, asked.weights)
    if name := other_model(asked, stored.model):
        raise _begun(path, name, getattr(stored.model, name), getattr(asked.model, name))
    return stored, origin


def _begun(path: Path, name: str, old: Any, new: Any) -> UsageError:
    return UsageError(f"{path} was begun with {name} = {old}, not {new}", "go on with the same settings, or start a new run with --out")


def same_pictures(path: Path, setup: Setup) -> None:
    """Refuse to go on with pictures that came or went since the run began: what it validates on might be what it has learnt."""
    if not (path / "env.json").exists():
        return
    began = read_json(path / "env.json").get("data", {})
    for split, count in (("train", len(setup.data.train)), ("validation", len(setup.data.validation))):
        if began.get(split, count) != count:
            raise DataError(
                f"{path} was begun with {began[split]:,} pictures ({split}), {setup.data.name} has {count:,} now",
                "put the pictures back as they were, or start a new run with --out",
            )


def describe(path: Path, setup: Setup, stepper: Stepper, compile_seconds: float, world: World) -> None:
    """env.json: what the result depends on besides the config."""
    if not world.main:
        return
    config = setup.config
    trained = sum(parameter.numel() for parameter in setup.model.parameters() if parameter.requires_grad)
    write_json(
        path / "env.json",
        {
            **describe_machine(),
            "device": setup.device.type,
            "processes": world.size,
            "strategy": world.strategy if world.many else "one process",
            "precision": str(stepper.dtype).removeprefix("torch."),
            "compiled": stepper.compiled,
            "compile_seconds": round(compile_seconds, 3),
            "parameters": sum(parameter.numel() for parameter in setup.model.parameters()),
            "trained_parameters": trained,
            "forward_flops": forward_flops(config.model),
            "data": setup.data.describe(),
        },
    )


def headline(setup: Setup, stepper: Stepper, total: int, step: int) -> str:
    """One line before the first step: what learns, where, for how long."""
    parameters = list(setup.model.parameters())
    every = sum(parameter.numel() for parameter in parameters)
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    config = setup.config
    which = f"{trained:,} of {every:,} parameters learn ({config.train.tune})" if trained != every else f"{every:,} parameters learn"
    going = f", going on at step {step:,}" if step else ""
    return f"{config.name}: {which}, {len(setup.data.train):,} pictures, {total:,} steps on {setup.device.type}{going}"


def whole_model(setup: Setup, world: World, values: dict[str, Tensor] | None = None) -> Classifier:
    """The model with all its weights in this process (sharded ones are gathered: every process must call this)."""
    model = setup.model
    if values is None and not (world.many and world.strategy == "fsdp"):
        return model
    full = {name: whole(value).cpu() for name, value in (values or dict(model.state_dict())).items()}
    with torch.random.fork_rng():  # building draws random numbers that the run must not miss
        copy = build(setup.config.model)
    copy.load_state_dict(full)
    copy.origin = model.origin
    return copy


def save_model(setup: Setup, path: Path, values: dict[str, Tensor], world: World, whole_run: bool = False) -> None:
    model = whole_model(setup, world, values)
    if world.main:
        save(model, path, extra=to_dict(setup.config) if whole_run else None)
    world.barrier()


def record_test(path: Path, setup: Setup, result: Evaluation, world: World) -> None:
    """The test split's answers, picture by picture, and when it was opened."""
    if not world.main:
        return
    write_json(path / "test.json", {**result.to_dict(setup.data.class_names), "opened": setup.data.test_opened})
    np.savez_compressed(path / "test.npz", predictions=result.predictions, labels=result.labels)
    environment: dict[str, Any] = read_json(path / "env.json")
    environment["data"] = setup.data.describe()
    write_json(path / "env.json", environment)
