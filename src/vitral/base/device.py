"""Which processor does the work, and what machine this is."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vitral.base.errors import FailedError, UsageError, VitralError
from vitral.base.version import __version__

if TYPE_CHECKING:
    import torch


def pick_device(name: str = "auto") -> torch.device:
    """`auto`: the first GPU, Apple's included, else the CPU; or a device by name: cpu, cuda, cuda:1, mps."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"unknown device {name!r}", "use auto, cpu, cuda, cuda:1 or mps") from error
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise UsageError(f"device {name} is not there: PyTorch sees no CUDA GPU", "use auto or cpu")
        if device.index is not None and device.index >= count:
            raise UsageError(f"device {name} is not there: this machine has {count} GPU(s)", f"use cuda:0 to cuda:{count - 1}")
        if device.index is not None:
            torch.cuda.set_device(device)  # kernels of our own and what is recorded go to the current one, which is the first unless told
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UsageError("device mps is not there: this is no Mac with a GPU that PyTorch can use", "use auto or cpu")
    return device


def wait_passively() -> None:
    """CPU threads sleep at barriers instead of spinning, unless the user says otherwise; before PyTorch is loaded, which reads it then.

    Spinning threads of one process hold the cores that its other threads are waiting for: beside others a training took 1,105 s
    instead of 42. libgomp (PyTorch's wheels) and libomp (macOS, conda) read the first name, libiomp5 the second.
    """
    if not any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")):
        os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}


def wait(device: torch.device) -> None:
    """Until the device has done all it was told to."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def refused_by_apple(error: BaseException) -> FailedError | None:
    """What Apple's GPU cannot do, in one line with the way out. None: the error has another cause."""
    text = " ".join(str(error).split())
    # CUDA's own errors may name its MPS, the Multi-Process Service.
    if isinstance(error, VitralError) or "CUDA error" in text or not re.search(r"\bMPS|\bmps:\d", text):
        return None
    operator = re.search(r"(?:operator|run) '([\w:.]+)'", text)
    what = f"run {operator[1]}" if operator else "compute in float64" if "float64" in text else f"do this ({text[:120]})"
    what = "find enough memory" if "out of memory" in text else what
    return FailedError(f"PyTorch cannot {what} on Apple's GPU", 'use --device cpu, or device="cpu" in Python')


def set_threads(count: int) -> None:
    """How many CPU threads one operation may use."""
    import torch

    if count < 1:
        raise UsageError(f"{count} threads", "use at least 1")
    torch.set_num_threads(count)


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """So many inside the block; after it as many as before: the next model of this process may be larger. None: as it is."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        set_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def chip() -> str | None:
    """Apple's name of a Mac's processor, whose GPU is part of it. None: not a Mac."""
    if platform.system() != "Darwin":
        return None
    try:
        done = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return platform.machine()
    return done.stdout.strip() or platform.machine()


def describe_machine() -> dict[str, Any]:
    """What a result depends on besides its config; written into each run folder. No host, user or path is in it."""
    import numpy
    import torch

    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    own = chip()
    if own and torch.backends.mps.is_available():
        gpus = [own]
    return {
        "vitral": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu_count": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        **({"chip": own} if own else {}),
        "gpu": gpus[0] if gpus else None,
        "gpu_count": len(gpus),
        "cuda": torch.version.cuda if gpus else None,
        "cudnn": torch.backends.cudnn.version() if gpus else None,
    }
