"""One process, or many under torchrun: DDP (a copy of the model each) or FSDP2 (a shard each), over gloo or NCCL.

The global batch, the order of pictures and the result stay those of one process. A process that dies is noticed by the others
through its heartbeat in the rendezvous store, whatever the backend is doing.
"""

from __future__ import annotations

import os
import re
import threading
import time
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vitral.base.errors import FailedError
from vitral.base.progress import say

_BEAT = 1.0
_SILENCE = 15.0
"""Seconds without a heartbeat after which a process counts as dead."""


class World:
    """This process among its peers; alone, everything here does nothing."""

    def __init__(self, strategy: str = "auto", device: str = "auto") -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0")) if self.size > 1 else 0
        self.strategy = "ddp" if strategy == "auto" else strategy
        self.many = self.size > 1
        self._stop = threading.Event()
        if not self.many:
            return
        cuda = device != "cpu" and torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if not dist.is_initialized():
            dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(minutes=10))
        self._watch()

    @property
    def main(self) -> bool:
        return self.rank == 0

    def wrap(self, learner: nn.Module, blocks: list[nn.Module], device: torch.device) -> nn.Module:
        """The learner as the strategy wants it."""
        if not self.many:
            return learner
        if self.strategy == "fsdp":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh(device.type, (self.size,))
            for block in blocks:
                fully_shard(block, mesh=mesh)
            # The root too is put away after each forward: an evaluation must not leave it whole.
            fully_shard(learner, mesh=mesh, reshard_after_forward=True)
            return learner
        return DistributedDataParallel(learner, device_ids=[device.index] if device.type == "cuda" else None)

    def agree(self, *wishes: bool) -> list[bool]:
        """What any process wishes, all do."""
        if not self.many:
            return list(wishes)
        flags = torch.tensor(wishes, dtype=torch.int32, device=self._device())
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        return [bool(flag) for flag in flags.tolist()]

    def largest(self, value: float) -> float:
        """Of the values of all processes."""
        if not self.many:
            return value
        return float(self.gather([np.array([value])])[0].max())

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.many:
            dist.all_reduce(values)
        return values

    def broadcast(self, value: Any) -> Any:
        """Process 0's value, in all of them."""
        if not self.many:
            return value
        values = [value]
        dist.broadcast_object_list(values, device=self._device())
        return values[0]

    def gather(self, columns: list[np.ndarray]) -> list[np.ndarray]:
        """Columns of all processes, joined."""
        if not self.many:
            return columns
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, columns)
        return [np.concatenate([part[index] for part in parts]) for index in range(len(columns))]

    def barrier(self) -> None:
        if self.many:
            dist.barrier()

    def close(self) -> None:
        self._stop.set()
        if self.many and dist.is_initialized():
            dist.destroy_process_group()

    def _device(self) -> torch.device:
        return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")

    def _watch(self) -> None:
        """A thread that beats, and listens for the others; a hanging collective cannot hold it up."""
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        store = (
            dist.PrefixStore("heartbeat", dist.TCPStore(host, port, is_master=False))
            if agent
            else dist.PrefixStore("heartbeat", _own_store(self.rank, host, port))
        )
        threading.Thread(target=self._beat, args=(store,), daemon=True, name="heartbeat").start()

    def _beat(self, store: Any) -> None:
        seen: dict[int, tuple[bytes, float]] = {}
        count = 0
        while not self._stop.wait(_BEAT):
            count += 1
            try:
                store.set(f"{self.rank}", str(count))
                now = time.monotonic()
                for rank in range(self.size):
                    beat = store.get(f"{rank}") if store.check([f"{rank}"]) else b""
                    last, since = seen.get(rank, (b"none", now))
                    seen[rank] = (beat, now) if beat != last else (last, since)
                silent = [rank for rank, (_, since) in seen.items() if now - since > _SILENCE]
            except Exception as error:
                if self._stop.is_set():
                    return
                self._give_up(f"the rendezvous is gone ({type(error).__name__}): the process that hosts it has ended")
                return
            if silent:
                ranks = ", ".join(map(str, silent))
                self._give_up(f"process {ranks} has not been heard of for {_SILENCE:.0f} s: it was killed or its machine is gone")
                return

    def _give_up(self, cause: str) -> None:
        say(f"error: process {self.rank} stops: {cause}: start again with --resume")
        os._exit(1)


# ---- inside a step -------------------------------------------------------------------------------------------------------------


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def everywhere(values: Tensor) -> Tensor:
    """The mean of `values` over all processes, with gradients: what is a mean over a batch becomes one over the whole batch."""
    return _mean(values) if world_size() > 1 else values  # type: ignore[return-value, arg-type]


def same_everywhere(values: Tensor) -> Tensor:
    """Process 0's values, in all of them; without gradients."""
    if world_size() > 1:
        dist.broadcast(values, 0)
    return values


@torch.compiler.disable
def _mean(values: Tensor) -> Tensor:
    return _Mean.apply(values)  # type: ignore[return-value]


class _Mean(torch.autograd.Function):
    """DDP takes the mean of the gradients of all processes, so the gradient of a mean is a mean, too."""

    @staticmethod
    def forward(_: Any, values: Tensor) -> Tensor:
        return _reduced(values)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return _reduced(gradient)


def _reduced(values: Tensor) -> Tensor:
    values = values.contiguous().clone()
    dist.all_reduce(values)
    return values / world_size()


def _own_store(rank: int, host: str, port: int) -> Any:
    """Without torchrun's agent, process 0 hosts a second store beside the rendezvous."""
    return dist.TCPStore(host, port + 1, is_master=rank == 0, wait_for_workers=False)


def lost_peer(error: BaseException, rank: int, step: int) -> FailedError:
    """A collective that failed because another process ended."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    first = re.sub(r"\[/[^\]]*\]\s*", "", first)  # the place in the library's source helps nobody here
    return FailedError(
        f"process {rank} lost contact with another process at step {step}: it ended or its machine is gone ({first[:160]})",
        "look for the first error of the other processes, then start again with --resume",
    )
