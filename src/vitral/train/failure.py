"""What can stop a run, and what to tell its user: a signal, a loss that is no number, too little memory."""

from __future__ import annotations

import re
import shlex
import signal
import threading
from types import FrameType
from typing import Any

import torch

from vitral.base.device import refused_by_apple
from vitral.base.errors import FailedError, Stopped, VitralError
from vitral.base.progress import say
from vitral.config import RunConfig
from vitral.cost.memory import fitting_batch
from vitral.cost.precision import dtype_of, is_compiled
from vitral.run.folder import RunFolder
from vitral.train.parallel import World, lost_peer
from vitral.train.steps import run_memory

_STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGXCPU") if hasattr(signal, name)]
"""Ctrl-C, a job queue's end (Slurm sends USR1 before it takes a job back), a closed terminal, a limit on CPU time."""


class Interrupts:
    """Signals that ask the loop to stop after the step; a second one stops at once."""

    def __init__(self) -> None:
        self.asked = ""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _STOPPING:
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        self.asked = signal.Signals(number).name
        say(f"{self.asked}: saving after this step (once more to stop at once)")
        for other, handler in self._before.items():
            signal.signal(other, handler)


def go_on(folder: RunFolder) -> str:
    run, settled = folder.asked.run if folder.asked else folder.settled.name, folder.settled
    verb = ["train", run] if settled.pretrain is None else ["pretrain", settled.data.name]
    return f"go on with: {shlex.join(['vitral', *verb, '--out', str(folder.path), '--resume'])}"


def stopped(folder: RunFolder, step: int, total: int, signal_name: str) -> Stopped:
    return Stopped(
        f"stopped by {signal_name or 'a signal to another process'} at step {step} of {total}, everything is saved",
        go_on(folder),
    )


def not_finite(
    config: RunConfig, step: int, epoch: float, loss: float, indices: list[int], lr: float, gradient: tuple[int, str] | None = None
) -> FailedError:
    """The loss is NaN or infinite: where, on which pictures, and what to try; `gradient`: step and layer of the first that was."""
    train = config.train
    advice = [f"lower the learning rate (--lr {train.lr / 3:.2g})"]
    if train.warmup < 0.01:
        advice.append("warm up (--warmup 0.05)")
    if train.clip is None:
        advice.append("clip gradients (--clip 1)")
    if train.precision in ("fp16", "bf16"):
        advice.append("use --precision fp32")
    if not config.model.qk_norm and config.model.is_transformer:
        advice.append("or normalise queries and keys (qk_norm)")
    shown = ", ".join(map(str, indices[:8])) + (", …" if len(indices) > 8 else "")
    began = f"; the first such gradient is that of {gradient[1]} at step {gradient[0]}" if gradient else ""
    where = f"step {step} (epoch {epoch:.2f}, lr {lr:.2g})"
    return FailedError(f"the loss is {loss} at {where}, batch of training pictures {shown}{began}", "; ".join(advice))


def broken_weights(name: str) -> FailedError:
    return FailedError(
        f"the final weights hold NaN or infinity in {name}, so no model is written", "lower the learning rate (--lr), or clip (--clip 1)"
    )


def explained(error: Exception, config: RunConfig, device: torch.device, world: World, step: int) -> Exception:
    """What stopped the loop, in one line where a user can act on it."""
    if isinstance(error, VitralError):
        return error
    if _is_out_of_memory(error):
        available = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
        available = torch.mps.recommended_max_memory() if device.type == "mps" else available
        return out_of_memory(config, available, device, world.size)
    if (refused := refused_by_apple(error)) is not None:
        return refused
    if world.many and isinstance(error, RuntimeError):
        return lost_peer(error, world.rank, step)
    return error


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and bool(re.search(r"out of memory|can't allocate memory|not enough memory", str(error)))


def out_of_memory(config: RunConfig, available: int | None, device: torch.device, processes: int = 1) -> FailedError:
    """Which micro-batch would fit, by the memory model of `plan`."""
    train = config.train
    dtype, compiled = dtype_of(train.precision, device), is_compiled(train.compile, device)
    now = train.batch_size // train.accumulate // processes
    if config.model.family == "own":
        fit = now // 2  # what it is made of is not known
    else:
        fit = fitting_batch(lambda images: run_memory(config, images, dtype, compiled).total, available, below=now)
    if fit == 0:
        hint = "not even one picture fits: use a smaller model, a smaller picture, larger patches or --set gradient_checkpointing=true"
    else:
        larger = range(train.accumulate + 1, train.batch_size + 1)
        micro_batches = [k for k in larger if train.batch_size % (k * processes) == 0 and train.batch_size // k // processes <= fit]
        same = f"--accumulate {micro_batches[0]} keeps the result the same, or " if micro_batches else ""
        hint = f"about {fit} pictures at a time would fit: {same}--batch-size {fit * processes * train.accumulate}"
    return FailedError(
        f"out of memory on {device.type} with {now} pictures of {config.model.image_size[0]}×{config.model.image_size[1]} at a time", hint
    )
