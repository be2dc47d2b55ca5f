"""Which runs this user's machine has made: only those may name folders that are then opened.

A run folder from elsewhere is somebody's word: what its config names as data could be anything that this user can read. The record holds
one hash a run, of its place and its config, so that a config changed by hand or put in another's place is not taken for our own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from vitral.base.errors import UsageError, VitralError
from vitral.base.files import make_folder, read_bounded, sha256_file
from vitral.base.layout import CONFIG
from vitral.config import RunConfig

LIMIT = 64 * 2**20


def record(run: Path) -> None:
    """Remember that this run was made here; where nothing can be written, it is a stranger's from the next command on."""
    try:
        with open(make_folder(_list_file().parent) / _list_file().name, "a", encoding="ascii") as file:
            file.write(_mark(run) + "\n")
    except (OSError, VitralError):
        pass


def made_here(run: Path) -> bool:
    try:
        return _mark(run).encode() in read_bounded(_list_file(), LIMIT).split()
    except VitralError:
        return False


def check_named(run: Path, config: RunConfig, argv: Sequence[str]) -> None:
    """Refuse what a stranger's run names unless the user has `said` it too: folders, weights, teachers, where data is kept."""
    if made_here(run):
        return
    named = {"data": config.data.name if ":" in config.data.name else None, "root": config.data.root, "from": config.weights}
    for flag, value in {**named, "teacher": config.train.teacher}.items():
        if value is not None and not any(word == value or word.endswith(f"={value}") for word in argv):
            raise UsageError(f"{run} names {value}, and was not made on this machine", f"if you mean it, say it: --{flag} {value}")
    if config.train.wandb and not any(word.startswith("--wandb") for word in argv):  # it would send every figure, with this user's key
        raise UsageError(f"{run} reports to Weights & Biases, and was not made on this machine", "say it too, --wandb, or --no-wandb")


def _mark(run: Path) -> str:
    return hashlib.sha256(f"{os.path.realpath(run)}\0{sha256_file(run / CONFIG)}".encode(errors="surrogateescape")).hexdigest()


def _list_file() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vitral" / "runs-made-here.txt"
