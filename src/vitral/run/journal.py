"""metrics.jsonl: one object a line, on disk as soon as it is written, cut back to the checkpoint on resume."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import zlib
from pathlib import Path
from typing import Any

from vitral.base.errors import ConfigError, DataError
from vitral.base.files import read_bounded, write_atomic, writing
from vitral.base.lazy import how_to_install
from vitral.config import TrainConfig

LARGEST = 128 * 2**20
"""Bytes: half a million lines."""
_HUGE = 1e15
"""Steps and seconds that no run has: what is beyond cannot be written as a number of days."""
NUMBERS = ("loss", "accuracy", "lr", "images_per_second")
_WANDB_ID = "wandb-id.txt"
"""In the run folder: the name under which W&B keeps the run, so that a resumed training goes on with it."""


class Journal:
    """`write` appends a line and passes its numbers on to TensorBoard and W&B when asked for. Silent without a path (other ranks)."""

    def __init__(self, path: Path | None, position: int = 0, tensorboard: bool = False, wandb: bool = False, name: str = "run") -> None:
        self.path = path
        self._file = None
        self._board: Any = None
        self._wandb: Any = None
        if path is None:
            return
        with writing(path):
            path.touch()
            os.truncate(path, min(position, path.stat().st_size))
            self._file = path.open("a", encoding="utf-8")
        if tensorboard:
            self._board = _open_tensorboard(path.parent / "tensorboard")
        if wandb:
            self._wandb = _open_wandb(path.parent, name)

    def write(self, record: dict[str, Any]) -> None:
        if self._file is None:
            return
        with writing(self._file.name):
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
        numbers = {key: value for key, value in record.items() if isinstance(value, int | float) and key not in ("step", "epoch")}
        if self._board is not None:
            for key, value in numbers.items():
                self._board.add_scalar(f"{record['split']}/{key}", value, record["step"])
        if self._wandb is not None:
            self._wandb.log({f"{record['split']}/{key}": value for key, value in numbers.items()}, step=record["step"])

    def position(self) -> int:
        """Bytes written so far, safely on disk."""
        if self._file is None:
            return 0
        with writing(self._file.name):
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Once or more: the second time there is nothing left to close."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk: what could not be written was said when it was
                self._file.close()
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()
        self._file = self._board = self._wandb = None


def read_metrics(path: Path, damaged: list[str] | None = None) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, or of a record's metrics.jsonl.gz.

    One that cannot be read, as a crash leaves it, is left out and added to `damaged`."""
    if not path.exists():
        return []
    content = read_bounded(path, LARGEST)
    if path.suffix == ".gz":
        content = _unpacked(path, content)
    rows = []
    for piece in io.BytesIO(content):
        line = piece.decode(errors="replace")
        try:
            row = json.loads(line) if line.endswith("\n") else None
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict) and all(_fits(name, value) for name, value in row.items()):
            rows.append(row)
        elif damaged is not None:
            damaged.append(line)
    return rows


def _unpacked(path: Path, content: bytes) -> bytes:
    try:
        with gzip.open(io.BytesIO(content)) as file:
            unpacked = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be unpacked ({error})", "it is damaged: fetch the record again") from error
    if len(unpacked) > LARGEST:
        raise DataError(f"{path} unpacks to more than {LARGEST:,} bytes", "it is no journal")
    return unpacked


def _fits(name: str, value: Any) -> bool:
    """Whether what reads a journal can go by this value: the split is a word, the others are numbers or nothing."""
    if name == "split":
        return isinstance(value, str)
    if name in ("step", "epoch", "seconds"):
        return isinstance(value, int | float) and abs(value) < _HUGE
    return value is None or (isinstance(value, int | float | str) if name not in NUMBERS else isinstance(value, int | float))


def check_installed(train: TrainConfig) -> None:
    """Refuse a journal whose library is missing, before a run has written anything."""
    if train.tensorboard:
        _tensorboard()
    if train.wandb:
        _wandb()


def _open_tensorboard(folder: Path) -> Any:
    return _tensorboard().SummaryWriter(str(folder))


def _open_wandb(folder: Path, name: str) -> Any:
    """A new run there, or the one this folder began: W&B goes on only with a run whose id it is told."""
    id_file = folder / _WANDB_ID
    run_id = id_file.read_text(encoding="utf-8").strip() if id_file.exists() else None
    run = _wandb().init(project="vitral", name=name, dir=str(folder), id=run_id, resume="allow")
    write_atomic(id_file, run.id)
    return run


def _tensorboard() -> Any:
    try:
        from torch.utils import tensorboard
    except ImportError as error:
        raise ConfigError("tensorboard is not installed", f"{how_to_install('tensorboard')}, or leave --tensorboard out") from error
    return tensorboard


def _wandb() -> Any:
    try:
        import wandb  # type: ignore[import-not-found]
    except ImportError as error:
        raise ConfigError("wandb is not installed", "pip install wandb, or leave --wandb out") from error
    return wandb
