"""Stand-ins for a training: what a pool does with a cell that works, fails, or takes its process with it."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path
from typing import Any

from vitral.base.errors import ConfigError, Stopped
from vitral.study.fight.experiment import Cell
from vitral.study.fight.table import Outcome


def square(cell: dict[str, Any], folder: str) -> dict[str, Any]:
    Path(folder).mkdir(parents=True, exist_ok=True)
    seed = cell["run"]["train"]["seed"]
    return {"square": seed * seed, "process": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS")}


def die_once(cell: dict[str, Any], folder: str) -> dict[str, Any]:
    """Seed 1 takes its process down at the first attempt."""
    mark = Path(folder) / "been-here"
    if cell["run"]["train"]["seed"] == 1 and not mark.exists():
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        os._exit(9)
    return square(cell, folder)


def die_or_be_killed(cell: dict[str, Any], folder: str) -> dict[str, Any]:
    """At the first attempt seed 1 ends its process and seed 2 is killed, as the system would; both write down when."""
    place, seed = Path(folder), cell["run"]["train"]["seed"]
    place.mkdir(parents=True, exist_ok=True)
    if seed in (1, 2) and not (place / "died").exists():
        (place / "died").write_text(str(time.time()))
        if seed == 1:
            os._exit(9)
        os.kill(os.getpid(), signal.SIGKILL)
    return square(cell, folder)


def die_always(cell: dict[str, Any], folder: str) -> dict[str, Any]:
    if cell["run"]["train"]["seed"] == 1:
        raise RuntimeError("out of luck")
    return square(cell, folder)


def refuse(cell: dict[str, Any], folder: str) -> dict[str, Any]:
    raise ConfigError("these settings cannot work", "use others")


def linger(cell: dict[str, Any], folder: str) -> dict[str, Any]:
    """All but seed 0 take longer than anybody waits."""
    if cell["run"]["train"]["seed"]:
        time.sleep(600)
    return square(cell, folder)


def stop(cell: dict[str, Any], folder: str) -> dict[str, Any]:
    raise Stopped("stopped by SIGINT at step 3 of 9, everything is saved", "go on")


def learn(plain: dict[str, Any], folder: str) -> dict[str, Any]:
    """The higher the learning rate the better, until it is too high."""
    cell = Cell.from_dict(plain)
    if cell.lr > 5e-3:
        raise RuntimeError("the loss is nan")
    Path(folder).mkdir(parents=True, exist_ok=True)
    right = 100 * cell.lr
    return dataclasses.asdict(
        Outcome(cell.name, cell.contender, cell.seed, cell.lr, right, 1.0, right, 1, 1, 1.0, 1, 1.0, 1, "digits", role=cell.role)
    )


def prefer_zero(plain: dict[str, Any], folder: str) -> dict[str, Any]:
    """As `learn`, and far better from the start that is called zero."""
    out = learn(plain, folder)
    return {**out, "validation": out["validation"] + (Cell.from_dict(plain).run.model.initialisation == "zero")}


def diverge(plain: dict[str, Any], folder: str) -> dict[str, Any]:
    raise RuntimeError("the loss is nan")
