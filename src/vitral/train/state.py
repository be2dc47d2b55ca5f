"""The resumable state of a run: two slots and a pointer, so that a kill at any moment leaves a whole state behind.

`state/a` and `state/b` take turns. A slot is written beside the current one, reaches the disk, and only then does
`state/current.json` change over to it. Tensors are written by torch.distributed.checkpoint: by one process or by many, and
read again by another number of them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter

from vitral.base.errors import DataError
from vitral.base.files import read_json, write_json
from vitral.train.parallel import World

POINTER = "current.json"


class Slots:
    """The state folder of a run."""

    def __init__(self, folder: Path, world: World) -> None:
        self.folder, self.world = folder, world

    @property
    def current(self) -> Path | None:
        pointer = self.folder / POINTER
        return self.folder / read_json(pointer)["slot"] if pointer.exists() else None

    def write(self, tensors: dict[str, Tensor], extra: dict[str, Any]) -> None:
        """All processes call this; `extra` (plain values and small tensors) is process 0's."""
        current = self.current
        slot = self.folder / ("b" if current is not None and current.name == "a" else "a")
        if self.world.main:
            shutil.rmtree(slot, ignore_errors=True)
            slot.mkdir(parents=True)
        self.world.barrier()
        with _one_process():
            dcp.save(tensors, storage_writer=FileSystemWriter(slot / "tensors", sync_files=True), no_dist=not self.world.many)
        _save(slot / f"random-{self.world.rank}.pt", random_states())
        if self.world.main:
            _save(slot / "extra.pt", extra)
        self.world.barrier()
        if self.world.main:
            write_json(self.folder / POINTER, {"slot": slot.name, "step": extra["step"], "processes": self.world.size})
        self.world.barrier()

    def extra(self) -> dict[str, Any]:
        return _load(self._slot() / "extra.pt")

    def names(self) -> set[str]:
        """What the current slot holds."""
        return set(FileSystemReader(self._slot() / "tensors").read_metadata().state_dict_metadata)

    def read(self, tensors: dict[str, Tensor]) -> None:
        """Fill the given tensors, in place, whatever number of processes wrote them."""
        with _one_process():
            dcp.load(tensors, storage_reader=FileSystemReader(self._slot() / "tensors"), no_dist=not self.world.many)

    def restore_random(self, seed: int, step: int) -> None:
        """The random generators of this process as they were; a process that did not exist then gets its own seed."""
        path = self._slot() / f"random-{self.world.rank}.pt"
        same = read_json(self.folder / POINTER)["processes"] == self.world.size
        if same and path.exists():
            set_random_states(_load(path))
        else:
            seed_process(seed, self.world.rank, step)

    def _slot(self) -> Path:
        slot = self.current
        if slot is None or not (slot / "extra.pt").exists():
            raise DataError(f"{self.folder} holds no state to go on from", "start the run again without --resume")
        return slot


def seed_process(seed: int, rank: int = 0, step: int = 0) -> None:
    """Dropout and the like differ between processes; what must be equal (initial weights, data) is seeded apart."""
    number = (seed * 1_000_003 + rank * 7_919 + step) % 2**32
    torch.manual_seed(number)


def random_states() -> dict[str, Any]:
    """PyTorch's generators: nothing else draws while a run lasts (data is drawn by address, see vitral.data.keys)."""
    states: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def optimizer_templates(names: set[str], model: nn.Module) -> dict[str, Tensor]:
    """Empty tensors to read moments into: shaped and sharded like their parameter; step counts and Muon's momentum are whole."""
    templates: dict[str, Tensor] = {}
    parameters = dict(model.named_parameters())
    for name in names:
        if name.startswith("optimizer/"):
            parameter, moment = name.removeprefix("optimizer/").rsplit("/", 1)
            like = parameters[parameter].detach()
            if moment == "step":
                templates[name] = torch.zeros((), dtype=torch.float32, device=like.device)
            elif moment == "momentum":
                templates[name] = torch.zeros(like.shape, dtype=like.dtype, device=like.device)
            else:
                templates[name] = torch.zeros_like(like)
    return templates


@contextlib.contextmanager
def _one_process() -> Iterator[None]:
    """PyTorch warns when a checkpoint is written without a process group; here that is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        yield


def _save(path: Path, value: Any) -> None:
    with path.open("wb") as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())


def _load(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)
