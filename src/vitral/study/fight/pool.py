"""Runs the cells of a study: here one after the other, in a pool of warm processes, or on a Ray cluster. The result is the same.

A cell writes its own folder and, last of all, `cell.json` in it. A cell with that file is done and is skipped; one with half a
folder goes on from its checkpoint; one that dies is run once more, and reported when it dies again.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any

from vitral.base.device import refused_by_apple, set_threads
from vitral.base.errors import DataError, FailedError, Stopped, UsageError, VitralError
from vitral.base.files import make_folder, read_json, write_json
from vitral.base.layout import CELL
from vitral.base.lazy import how_to_install
from vitral.base.lock import FolderLock
from vitral.base.manifest import vouching
from vitral.base.progress import progress, say
from vitral.study.fight.experiment import Cell

_ATTEMPTS = 2
Work = Callable[[dict[str, Any], str], dict[str, Any]]
"""Runs one cell (as plain values) in its folder and returns what `cell.json` shall hold; a function at the top of a module."""


@dataclass(frozen=True)
class Pool:
    """Where cells run: so many at a time, here or on a Ray cluster."""

    parallel: int = 1
    ray: str | None = None
    """A cluster's address, or "local" for one of our own."""
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.parallel < 1:
            raise UsageError(f"{self.parallel} cells at a time", "use --parallel 1 or more")


@dataclass
class Finished:
    """What became of the cells."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Cell name → what it returned, in the order of the cells."""
    skipped: list[str] = field(default_factory=list)
    """Were done before."""
    retried: dict[str, str] = field(default_factory=dict)
    """Cell name → why its first attempt died; its second one worked."""
    failed: dict[str, str] = field(default_factory=dict)
    """Cell name → why its last attempt died."""

    def raise_failures(self) -> None:
        if self.failed:
            name, reason = next(iter(self.failed.items()))
            more = f" ({len(self.failed)} cells failed)" if len(self.failed) > 1 else ""
            raise FailedError(
                f"cell {name} died twice: {reason}{more}", "mend the cause and run the same command again: finished cells are kept"
            )


def run_cells(
    cells: Sequence[Cell],
    folder: str | Path,
    work: Work,
    pool: Pool,
    *,
    threads: int | None = None,
    description: str = "Cells",
) -> Finished:
    """Run all cells, each in `folder/NAME`; on a CPU each has so many `threads`."""
    folder, quiet = make_folder(folder), pool.quiet
    names = [cell.name for cell in cells]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two cells have the name {twice} and would share a folder", "give each cell a name of its own")
    finished = Finished()
    with FolderLock(folder, "a study"):
        todo: list[Cell] = []
        for cell in cells:
            if (result := _result(cell, folder)) is not None:
                finished.results[cell.name] = result
                finished.skipped.append(cell.name)
            else:
                todo.append(cell)
        if finished.skipped and not quiet:
            say(f"{len(finished.skipped)} of {len(cells)} cells are done already")
        with progress(description, total=len(todo), quiet=quiet) as bar:
            for cell, result, error in _events(todo, folder, work, pool, threads):
                if error is None:
                    with vouching(make_folder(folder / cell.name), CELL):
                        write_json(folder / cell.name / CELL, {"cell": cell.to_dict(), "result": result})
                    finished.results[cell.name] = result or {}
                    bar.advance(1, last=cell.name)
                elif cell.name in finished.retried:
                    del finished.retried[cell.name]
                    finished.failed[cell.name] = error
                    bar.advance(1, failed=len(finished.failed))
                else:
                    finished.retried[cell.name] = error
                    if not quiet:
                        say(f"cell {cell.name} died ({error}); trying once more")
    finished.results = {cell.name: finished.results[cell.name] for cell in cells if cell.name in finished.results}
    return finished


Event = tuple[Cell, dict[str, Any] | None, str | None]


def _events(todo: list[Cell], folder: Path, work: Work, pool: Pool, threads: int | None) -> Iterator[Event]:
    """(cell, result, None) or (cell, None, why it died); a cell comes up to _ATTEMPTS times."""
    if not todo:
        return iter(())
    if pool.ray is not None:
        return _on_ray(todo, folder, work, pool.parallel, threads, pool.ray)
    return _in_pool(todo, folder, work, min(pool.parallel, len(todo)), threads) if pool.parallel > 1 else _here(todo, folder, work)


def _here(todo: list[Cell], folder: Path, work: Work) -> Iterator[Event]:
    for cell in todo:
        for _ in range(_ATTEMPTS):
            try:
                result, error = _attempt(work, cell.to_dict(), str(folder / cell.name))
            except Stopped as stop:
                raise Stopped(f"cell {cell.name} {stop.message}", "the same command goes on from here") from stop
            yield cell, result, error
            if error is None:
                break


def _attempt(work: Work, cell: dict[str, Any], folder: str) -> tuple[dict[str, Any] | None, str | None]:
    try:
        return work(cell, folder), None
    except (UsageError, Stopped):
        raise  # wrong settings do not get better by trying again, and who asked to stop means it
    except Exception as error:
        return None, _reason(error)


def _reason(error: BaseException) -> str:
    error = refused_by_apple(error) or error
    text = str(error) if isinstance(error, VitralError) else f"{type(error).__name__}: {error}"
    return (text.splitlines() or [type(error).__name__])[0]


class _Worker:
    """A spawned process that imports everything once and then runs cell after cell."""

    def __init__(self, work: Work, threads: int | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.link, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work, threads), daemon=True)
        with _environment(threads), _without_script(work):
            self.process.start()
        theirs.close()
        self.cell: Cell | None = None

    def give(self, cell: Cell, folder: Path) -> None:
        self.cell = cell
        with contextlib.suppress(BrokenPipeError):  # it died while idle: seen when we wait for it
            self.link.send((cell.to_dict(), str(folder / cell.name)))

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.link.send(None)
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.link.close()


def _serve(link: Connection, work: Work, threads: int | None) -> None:
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C goes to the parent alone, which decides what it means
    _die_with_parent()
    if threads:
        set_threads(threads)
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while (task := link.recv()) is not None:
            try:
                link.send(_attempt(work, *task))
            except UsageError as error:
                link.send(error)


def _in_pool(todo: list[Cell], folder: Path, work: Work, parallel: int, threads: int | None) -> Iterator[Event]:
    queue = deque(todo)
    tries = dict.fromkeys((cell.name for cell in todo), 0)
    workers: list[_Worker] = []
    before = _stop_on_terminate()
    try:
        workers = [_Worker(work, threads) for _ in range(parallel)]
        while queue or any(worker.cell for worker in workers):
            for worker in workers:
                if worker.cell is None and queue:
                    worker.give(queue.popleft(), folder)
            busy = {worker.link: worker for worker in workers if worker.cell}
            for link in wait(list(busy)):
                worker = busy[link]  # type: ignore[index]
                cell, worker.cell = worker.cell, None
                assert cell is not None
                try:
                    answer = worker.link.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    answer = (None, f"its process ended with code {worker.process.exitcode}")
                    worker.link.close()
                    workers[workers.index(worker)] = _Worker(work, threads)
                if isinstance(answer, UsageError):
                    raise answer
                tries[cell.name] += 1
                if answer[1] is not None and tries[cell.name] < _ATTEMPTS:
                    queue.append(cell)
                yield cell, answer[0], answer[1]
    except KeyboardInterrupt:
        raise _stopped("SIGINT") from None
    finally:
        for worker in workers:
            if worker.cell is not None:
                worker.process.kill()
        for worker in workers:
            worker.stop()
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _stop_on_terminate() -> Any:
    """Let SIGTERM end a pool in order and with a word, as Ctrl-C does; the handler before it, None outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return None

    def stop(_number: int, _frame: Any) -> None:
        raise _stopped("SIGTERM")

    return signal.signal(signal.SIGTERM, stop)


def _stopped(by: str) -> Stopped:
    return Stopped(f"stopped by {by}: finished cells are kept, begun ones have their last checkpoint", "the same command goes on from here")


def _on_ray(todo: list[Cell], folder: Path, work: Work, parallel: int, threads: int | None, address: str) -> Iterator[Event]:
    try:
        import ray
        from ray.exceptions import RayError, RayTaskError
    except ImportError as error:
        raise UsageError("ray is not installed", f"{how_to_install('ray')}, or leave --ray out") from error
    source = str(Path(__file__).parents[3])
    count = str(threads or 1)
    environment = {"PYTHONPATH": os.pathsep.join(dict.fromkeys([source, *filter(None, sys.path)])), "OMP_NUM_THREADS": count}
    started = not ray.is_initialized()
    if started:
        try:
            ray.init(
                address=address,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": environment},
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(f"no Ray cluster answers at {address} ({_reason(error)})", "check --ray, or use --ray local") from error
    try:
        largest = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        if largest < (threads or 1):  # Ray would wait for such a machine for ever
            raise UsageError(f"a cell wants {threads or 1} cores, the largest machine of the cluster has {largest:g}", "use fewer threads")
        gpus = 1 / parallel if ray.cluster_resources().get("GPU", 0) else 0
        remote = ray.remote(num_cpus=threads or 1, num_gpus=gpus, max_retries=0)(_attempt)
        tries = dict.fromkeys((cell.name for cell in todo), 0)
        folder = folder.resolve()

        def submit(cell: Cell) -> Any:
            return remote.remote(work, cell.to_dict(), str(folder / cell.name))

        pending = {submit(cell): cell for cell in todo}
        while pending:
            try:
                (done, *_), _ = ray.wait(list(pending), num_returns=1)
            except RayError as error:
                left = ", ".join(sorted(cell.name for cell in pending.values())[:3])
                raise FailedError(f"the Ray cluster is gone ({_reason(error)}), with {left} to do", "run the same command again") from error
            cell = pending.pop(done)
            try:
                answer = ray.get(done)
            except RayTaskError as error:
                if isinstance(error.cause, UsageError):
                    raise error.cause from None
                answer = (None, _reason(error.cause))  # a task that was told to stop, or whose answer could not travel
            except RayError as error:  # its process or its machine died: Ray tells within seconds
                answer = (None, _reason(error))
            if answer[1] is None and not (folder / cell.name).is_dir():
                raise FailedError(f"cell {cell.name} ended elsewhere but {folder} does not show it", "use an --out that all machines share")
            tries[cell.name] += 1
            if answer[1] is not None and tries[cell.name] < _ATTEMPTS:
                pending[submit(cell)] = cell
            yield cell, answer[0], answer[1]
    finally:
        if started:
            ray.shutdown()


def _result(cell: Cell, folder: Path) -> dict[str, Any] | None:
    """What a finished cell returned; None when it is not finished."""
    path = folder / cell.name / CELL
    if not path.exists():
        return None
    stored = read_json(path)
    if not isinstance(stored, dict) or not isinstance(stored.get("cell"), dict) or not isinstance(stored.get("result"), dict):
        raise DataError(
            f"{path} is damaged: it does not hold a cell and its result", f"remove {path.parent} and run the same command again"
        )
    if Cell.from_dict(stored["cell"]) != cell:  # read first: a cell of an earlier version lacks fields that have come since
        raise UsageError(f"{path.parent} holds another run of the same name", "choose another --out")
    return stored["result"]


@contextlib.contextmanager
def _without_script(work: Work) -> Iterator[None]:
    """Keep a new process from importing the user's script, which it needs only for a `work` that lives there.

    Without an `if __name__ == "__main__":` guard the import would begin the study anew inside its own cells.
    """
    script = sys.modules["__main__"]
    if work.__module__ != "__main__":
        sys.modules["__main__"] = ModuleType("__main__")  # it has no file, so there is nothing to import
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextlib.contextmanager
def _environment(threads: int | None) -> Iterator[None]:
    """Libraries read their thread count when they are loaded, so it must be set before the process starts."""
    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    if threads:
        os.environ.update(dict.fromkeys(before, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _die_with_parent() -> None:
    """Linux: when the study is killed, its cells must not go on writing beside the ones of its next attempt."""
    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
