"""One thread that runs the model, a short queue before it, and a cache of what it made."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

from vitral.base.device import refused_by_apple
from vitral.base.progress import Progress, watched
from vitral.web.server.limits import Refusal


class Job(Future[Any]):
    """Something for the model to do. Cancelled while it runs, it ends at its next step."""

    def __init__(self, work: Callable[[], Any], long: bool) -> None:
        super().__init__()
        self.work, self.long = work, long
        self.stopped = False
        self.progress: Progress | None = None

    def cancel(self) -> bool:
        self.stopped = True
        return super().cancel()

    def run(self, watcher: Callable[[Progress], None]) -> None:
        if not self.set_running_or_notify_cancel():
            return
        try:
            with watched(watcher):
                result = self.work()
        except BaseException as error:
            self.set_exception(refused_by_apple(error) or error)
        else:
            self.set_result(result)


class Worker:
    """Runs jobs one after another: the model has one user at a time, and memory is bounded by one job.

    A long job lets the others through between its steps. At most `waiting` jobs stand in line; the next is refused at once (503) rather
    than made to wait without end.
    """

    def __init__(self, waiting: int) -> None:
        self._line: deque[Job] = deque()
        self._changed = threading.Condition()
        self._slots = threading.Semaphore(1 + max(1, waiting))  # one job runs, the others wait
        self._closed = False
        self.long: Job | None = None
        """The long job that is under way."""
        self._thread = threading.Thread(target=self._work, name="vitral-model_0", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Any], long: bool = False) -> Future[Any]:
        """`long`: it may be left waiting for others, and tells its steps through `vitral.base.progress`."""
        if self._closed:
            raise Refusal(503, "the server is shutting down", "start it again")
        if not self._slots.acquire(blocking=False):
            raise Refusal(503, "the model is busy and the line is full", "try again in a moment")
        job = Job(work, long)
        job.add_done_callback(lambda _: self._slots.release())
        with self._changed:
            self._line.append(job)
            self._changed.notify()
        return job

    def close(self) -> None:
        """End a long job at its next step, finish any other, drop what waits."""
        with self._changed:
            self._closed = True
            for job in self._line:
                job.cancel()
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._line or self._closed)
            while job := self._next():
                self.long = job if job.long else None
                job.run(self._between)
                self.long = None

    def _next(self, long: bool = True) -> Job | None:
        """The first in line, a long one last."""
        with self._changed:
            job = next((job for job in self._line if not job.long), self._line[0] if self._line and long else None)
            if job:
                self._line.remove(job)
            return job

    def _between(self, progress: Progress) -> None:
        """Called at every step of a job."""
        long = self.long
        if long is None:
            return
        long.progress = progress
        while not self._closed and (job := self._next(long=False)):
            job.run(lambda _: None)  # who is let through lets nobody through
        if long.stopped or self._closed:
            raise Refusal(503, "stopped", "ask again")


class LRUCache:
    """A bounded store: the least recently used entries leave when the bytes of all exceed `limit`.

    cachetools has the same, but an exported page, which needs nothing beyond
    Vitral's own dependencies, would then need one more.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()  # uploads come in while the model's thread looks up

    def get(self, key: Hashable) -> Any | None:
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        with self._lock:
            self.size += size - self._entries.pop(key, (None, 0))[1]
            self._entries[key] = (value, size)
            while self.size > self.limit and len(self._entries) > 1:
                self.size -= self._entries.popitem(last=False)[1][1]

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries
