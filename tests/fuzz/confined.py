"""Run one thing in a forked child with a deadline and a bound on memory, and say how it ended: the tests stay safe, whatever it does."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import pickle
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import torch

from vitral.base.errors import VitralError
from vitral.base.text import clean

MEMORY = 3 * 2**29
"""Bytes resident at the peak on top of what the warm process has made: half a gigabyte at first, after many tests far more."""
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
    began, warm = time.monotonic(), inherited()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(work, writing)
    os.close(writing)
    answer = _receive(reading, began + seconds)
    if answer is None:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    peak, took = max(0, used.ru_maxrss * 1024 - warm), time.monotonic() - began
    if answer is None:
        return Ending("timeout", f"longer than {seconds:g} s", memory=peak, seconds=took)
    kind, message, value = pickle.loads(answer) if answer else ("died", f"status {status}", None)
    if peak > memory:
        kind, message = "memory", f"{peak / 2**30:.2f} GiB; {kind}: {message}"
    return Ending(kind, message, value, peak, took)


def confined_each(works: Sequence[Callable[[], Any]], memory: int = MEMORY, seconds: float = SECONDS) -> Iterator[Ending]:
    """How each ends; many in one child after another, a fresh child after one that took too much."""
    left = list(works)
    while left:
        reading, writing = os.pipe()
        warm, child = inherited(), os.fork()
        if child == 0:
            os.close(reading)
            for work in left:
                _answer(work, writing, last=False)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb", 0) as pipe:
            while left:
                began = time.monotonic()
                ending = _next(pipe, began + seconds, memory, warm)
                left.pop(0)
                yield dataclasses.replace(ending, seconds=time.monotonic() - began)
                if ending.kind in ("timeout", "died") or ending.memory > memory:
                    break
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def inherited() -> int:
    """Bytes in memory that a child has from the start, without pages of files, which it reads anew. 0: the system does not say."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon:"))
    return 0


def _next(pipe: IO[bytes], deadline: float, memory: int, warm: int) -> Ending:
    """The next answer of a child that gives many."""
    content = b""
    while len(content) < 8 or len(content) < 8 + int.from_bytes(content[:8], "little"):
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return Ending("timeout")
        wanted = 8 - len(content) if len(content) < 8 else 8 + int.from_bytes(content[:8], "little") - len(content)
        piece = pipe.read(wanted)
        if not piece:
            return Ending("died")
        content += piece
    (kind, message, _), peak = pickle.loads(content[8:])
    peak = max(0, peak - warm)
    if peak > memory:
        kind, message = "memory", f"{peak / 2**30:.2f} GiB; {kind}: {message}"
    return Ending(kind, message, memory=peak)


def _answer(work: Callable[[], Any], writing: int, last: bool = True) -> None:
    """In the child: do it, send how it ended; after the last leave without any clean-up of the parent's."""
    try:
        pages = int(open("/proc/self/statm").read().split()[0]) if os.path.exists("/proc/self/statm") else 0  # noqa: SIM115
        if pages and resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BEYOND,) * 2)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        warnings.simplefilter("ignore")
        gc.freeze()  # what earlier tests have left behind stays: let go here, it would be taken off what this work needs
        torch.set_num_threads(1)  # a forked child has none of its parent's threads, and would wait for them for ever
        try:
            ending = ("fine", "", work())
        except VitralError as error:
            ending = ("refused", str(error), None) if _one_line(str(error)) else ("raw", f"not one clean line: {str(error)!r}", None)
        except BaseException as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            ending = ("raw", f"{type(error).__name__}: {str(error)[:200]} ({os.path.basename(frame.filename)}:{frame.lineno})", None)
        try:
            content = pickle.dumps(ending)
        except Exception:
            content = pickle.dumps((*ending[:2], None))
        if not last:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            content = pickle.dumps(((*ending[:2], None), peak))
            content = len(content).to_bytes(8, "little") + content
        while content:
            content = content[os.write(writing, content) :]
    finally:
        if last:
            os._exit(0)


def _one_line(message: str) -> bool:
    return bool(message) and "\n" not in message and clean(message) == message


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
