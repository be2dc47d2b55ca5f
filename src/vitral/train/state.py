"""The resumable state of a run: two slots that take turns, so that a kill or a power cut at any moment leaves a whole one behind.

A slot holds `tensors-RANK.safetensors` (what each process has: its shard of every tensor, with the place it belongs), `progress.json`
(counters) and, written last, `manifest.json`, which vouches for the others and for the journal up to here. The newest slot whose
manifest holds is gone on with. Nothing is pickled: a state from a stranger can be wrong, but it cannot run code.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from vitral.base.errors import DataError, FileError
from vitral.base.files import make_folder, read_json, sync_folder, write_json
from vitral.base.layout import MANIFEST, METRICS, PROGRESS, tensors_name
from vitral.base.manifest import describe, faults, is_entry, read_manifest, write_manifest
from vitral.base.progress import say
from vitral.train.ema import local
from vitral.train.parallel import World

RANDOM = "random/"
_LATEST = 1 << 62
"""A slot whose manifest is damaged is looked at first, so that it is named."""
_Region = tuple[tuple[int, int], ...]
"""(start, length) along each dimension of the whole tensor."""


class Slots:
    """The state folder of a run."""

    def __init__(self, folder: Path, world: World) -> None:
        self.folder, self.world = folder, world
        self._chosen: Path | None = None

    # ---- writing ---------------------------------------------------------------------------------------------------------------

    def write(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """All processes call this; `progress` (plain values, its `step` and `journal` among them) is process 0's."""
        slot = self.world.broadcast(self._oldest().name if self.world.main else None)
        slot = self.folder / slot
        if self.world.main:
            # The manifest goes first: from now on nothing vouches for this slot.
            (slot / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(slot, ignore_errors=True)
            make_folder(slot)
            sync_folder(self.folder.parent)
            sync_folder(self.folder)
        self.world.barrier()
        path = slot / tensors_name(self.world.rank)
        try:
            _write_tensors(path, {**tensors, **random_states()}, self.world.main)
        except (SafetensorError, OSError) as error:
            before = "the state before it is whole: free some space, then --resume"
            first = "no state was written before it: free some space, then start a new run with --out"
            raise FileError(
                f"cannot write {path} ({error})", f"is the disk full? {before if self._next_number() > 1 else first}"
            ) from error
        self.world.barrier()
        if self.world.main:
            write_json(slot / PROGRESS, {**progress, "processes": self.world.size})
            names = [PROGRESS, *(tensors_name(rank) for rank in range(self.world.size))]
            journal = describe(self.folder.parent / METRICS, progress["journal"])
            sync_folder(slot)
            write_manifest(slot, names, number=self._next_number(), step=progress["step"], journal=journal)
        self.world.barrier()

    def _oldest(self) -> Path:
        numbers = {name: _number(self.folder / name) for name in ("a", "b")}
        return self.folder / min(numbers, key=lambda name: numbers[name])

    def _next_number(self) -> int:
        return 1 + max(_number(self.folder / name) for name in ("a", "b"))

    # ---- reading ---------------------------------------------------------------------------------------------------------------

    @property
    def current(self) -> Path | None:
        """The newest state that is whole, checked once; None: none was ever written to its end."""
        if self._chosen is None:
            self._chosen = self._choose()
        return self._chosen

    def _choose(self) -> Path | None:
        slots = sorted((path for path in self.folder.glob("[ab]") if path.is_dir()), key=lambda slot: _number(slot, _LATEST), reverse=True)
        problems = []
        for slot in slots:
            fault = _fault(slot)
            if fault is None:
                if problems and self.world.main:
                    say(f"{problems[0]}: going on from the state before it (step {read_manifest(slot)['step']:,})")  # type: ignore[index]
                return slot
            problems.append(fault)
        if not any((slot / MANIFEST).exists() for slot in slots):
            return None  # ended while its first state was being written
        raise DataError("; ".join(problems), "no state is whole: start a new run with --out")

    def progress(self) -> dict[str, Any]:
        return read_json(self._slot() / PROGRESS)

    def names(self) -> set[str]:
        """Tensors in the current slot, but for the random states."""
        return {name for file in self._files() for name in file.keys() if not name.startswith(RANDOM)}  # noqa: SIM118 (no mapping)

    def read(self, tensors: dict[str, Tensor]) -> None:
        """Fill the given tensors, in place, whatever number of processes wrote them."""
        missing = {name: local(tensor).numel() for name, tensor in tensors.items()}
        with torch.no_grad():
            for file in self._files():
                regions = json.loads((file.metadata() or {}).get("places", "{}"))
                for name in file.keys():  # noqa: SIM118
                    if name in tensors:
                        missing[name] -= _fill(tensors[name], file.get_tensor(name), regions.get(name))
        if lacking := [name for name, count in missing.items() if count > 0]:
            raise DataError(f"{self._slot()} lacks {lacking[0]}", "the run was begun with another model: start a new one with --out")

    def restore_random(self, seed: int, step: int) -> None:
        """The random generators of this process as they were; a process that did not exist then gets its own seed."""
        if self.progress()["processes"] != self.world.size:
            seed_process(seed, self.world.rank, step)
            return
        with _open(self._slot() / tensors_name(self.world.rank)) as file:
            set_random_states({name: file.get_tensor(name) for name in file.keys() if name.startswith(RANDOM)})  # noqa: SIM118

    def _files(self) -> Iterator[Any]:
        for path in sorted(self._slot().glob(tensors_name(0).replace("0", "*"))):
            with _open(path) as file:
                yield file

    def _slot(self) -> Path:
        if self.current is None:
            raise DataError(f"{self.folder} holds no state to go on from", "start the run again without --resume")
        return self.current


def _number(slot: Path, unreadable: int = 0) -> int:
    """How late a slot was written; 0: nothing vouches for it; `unreadable`: its manifest is damaged."""
    try:
        stored = read_manifest(slot)
    except DataError:
        return unreadable
    number = stored.get("number") if stored else 0
    return number if isinstance(number, int) else unreadable


def _fault(slot: Path) -> str | None:
    """Why a slot cannot be gone on from."""
    try:
        manifest = read_manifest(slot)
        if manifest is None:
            return f"{slot} was not written to its end"
        fault = next(faults(slot), None)
        entry, journal = manifest.get("journal"), slot.parents[1] / METRICS
        if fault is None and is_entry(METRICS, entry):
            if not journal.is_file() or describe(journal, entry["size"])["sha256"] != entry["sha256"]:  # type: ignore[index]
                fault = f"{journal} is not what was written up to step {manifest.get('step')}"
        elif fault is None:
            fault = f"{MANIFEST} says nothing of the journal"
    except DataError as error:
        return str(error)
    return fault and f"{slot}: {fault}"


# ---- tensors, whole or in shards -------------------------------------------------------------------------------------------------


def _write_tensors(path: Path, tensors: dict[str, Tensor], main: bool) -> None:
    """This process's part: its shard of what is sharded, and all that is whole if it is the first."""
    own: dict[str, Tensor] = {}
    regions: dict[str, _Region] = {}
    for name, tensor in tensors.items():
        region = _region(tensor)
        if region is None and not main and not name.startswith(RANDOM):
            continue
        part = local(tensor)
        if region is not None:
            regions[name] = region
        if part.numel():
            own[name] = part.detach().to("cpu", copy=True).contiguous()
    save_file(own, path, metadata={"places": json.dumps(regions)})
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _fill(target: Tensor, part: Tensor, region: _Region | None) -> int:
    """Copy what a stored part and our part of a tensor share; returns how many numbers that was."""
    ours, mine = local(target), _region(target)
    if region is None and mine is None:
        if part.shape != ours.shape:
            return 0
        ours.copy_(part)
        return ours.numel()
    whole = tuple((0, size) for size in target.shape)
    stored, needed = region or whole, mine or whole
    into, out_of = [], []
    for (begin, length), (from_, count) in zip(needed, stored, strict=True):
        low, high = max(begin, from_), min(begin + length, from_ + count)
        if low >= high:
            return 0
        into.append(slice(low - begin, high - begin))
        out_of.append(slice(low - from_, high - from_))
    piece = part[tuple(out_of)]
    ours[tuple(into)].copy_(piece)
    return piece.numel()


def _region(tensor: Tensor) -> _Region | None:
    """Where the part in this process lies in the whole tensor; None: it is all here."""
    if not hasattr(tensor, "device_mesh"):
        return None
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)  # type: ignore[attr-defined]
    return tuple(zip(offset, shape, strict=True))


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} cannot be read ({error})", "start a new run with --out") from error


def optimizer_templates(names: set[str], parameters: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """Empty tensors to read moments into: shaped and sharded like their parameter; step counts and Muon's momentum are whole."""
    templates: dict[str, Tensor] = {}
    for name in names:
        if name.startswith("optimizer/"):
            parameter, moment = name.removeprefix("optimizer/").rsplit("/", 1)
            if parameter not in parameters:
                raise DataError(f"the state holds {name}, which this model does not have", "start a new run with --out")
            like = parameters[parameter].detach()
            if moment == "step":
                templates[name] = torch.zeros((), dtype=torch.float32, device=like.device)
            elif moment == "momentum":
                templates[name] = torch.zeros(like.shape, dtype=like.dtype, device=like.device)
            else:
                templates[name] = torch.zeros_like(like)
    return templates


# ---- random numbers --------------------------------------------------------------------------------------------------------------


def seed_process(seed: int, rank: int = 0, step: int = 0) -> None:
    """Dropout and the like differ between processes; what must be equal (initial weights, data) is seeded apart."""
    number = (seed * 1_000_003 + rank * 7_919 + step) % 2**32
    torch.manual_seed(number)


def random_states() -> dict[str, Tensor]:
    """PyTorch's generators: nothing else draws while a run lasts (data is drawn by address, see vitral.data.keys)."""
    states = {f"{RANDOM}cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states[f"{RANDOM}cuda"] = torch.cuda.get_rng_state()
    if torch.backends.mps.is_available():
        states[f"{RANDOM}mps"] = torch.mps.get_rng_state()
    return states


def set_random_states(states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states[f"{RANDOM}cpu"])
    if f"{RANDOM}cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states[f"{RANDOM}cuda"])
    if f"{RANDOM}mps" in states and torch.backends.mps.is_available():
        torch.mps.set_rng_state(states[f"{RANDOM}mps"])
