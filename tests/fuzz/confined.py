"""Run one thing in a forked child with a deadline and a bound on memory, and say how it ended: the tests stay safe, whatever it does."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vitral.base.errors import VitralError

MEMORY = 2 * 2**30
"""Bytes resident at the peak, the warm process included."""
SECONDS = 20.0
BEYOND = 6 * 2**30
"""Address space on top of what the warm process has: past it an allocation fails instead of the machine."""


@dataclass(frozen=True)
class Ending:
    kind: str
    """fine, refused (one line that says what to do), raw, timeout, memory, died."""
    message: str = ""
    value: Any = None
    memory: int = 0
    seconds: float = 0.0


def confined(work: Callable[[], Any], memory: int = MEMORY, seconds: float = SECONDS) -> Ending:
    """How `work` ends in a child of this process; its value, where it can be pickled."""
    reading, writing = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(work, writing)
    os.close(writing)
    answer = _receive(reading, began + seconds)
    if answer is None:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    peak, took = used.ru_maxrss * 1024, time.monotonic() - began
    if answer is None:
        return Ending("timeout", f"longer than {seconds:g} s", memory=peak, seconds=took)
    kind, message, value = pickle.loads(answer) if answer else ("died", f"status {status}", None)
    if peak > memory:
        kind, message = "memory", f"{peak / 2**30:.2f} GiB; {kind}: {message}"
    return Ending(kind, message, value, peak, took)


def _answer(work: Callable[[], Any], writing: int) -> None:
    """In the child: do it, send how it ended, leave without any clean-up of the parent's."""
    try:
        pages = int(open("/proc/self/statm").read().split()[0]) if os.path.exists("/proc/self/statm") else 0  # noqa: SIM115
        if pages:
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BEYOND,) * 2)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        warnings.simplefilter("ignore")
        try:
            ending = ("fine", "", work())
        except VitralError as error:
            ending = ("refused", str(error), None) if _one_line(str(error)) else ("raw", f"not one clean line: {str(error)!r}", None)
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            ending = ("raw", f"{type(error).__name__}: {str(error)[:200]} ({os.path.basename(last.filename)}:{last.lineno})", None)
        try:
            content = pickle.dumps(ending)
        except Exception:
            content = pickle.dumps((*ending[:2], None))
        while content:
            content = content[os.write(writing, content) :]
    finally:
        os._exit(0)


def _one_line(message: str) -> bool:
    return message.isprintable() and bool(message)


def _receive(reading: int, deadline: float) -> bytes | None:
    """What the child sent until it closed its end; None: too late."""
    content = b""
    with contextlib.closing(os.fdopen(reading, "rb", 0)) as pipe:
        while True:
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            piece = pipe.read(1 << 20)
            if not piece:
                return content
            content += piece
