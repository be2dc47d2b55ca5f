"""One thread that runs the model, a short line before it, and a memory of what it made."""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

from vitral.web.limits import Refusal


class Worker:
    """Runs jobs one after another: the model has one user at a time, and memory is bounded by one job.

    At most `waiting` jobs stand in line; the next is refused at once (503) rather than made to wait without end.
    """

    def __init__(self, waiting: int) -> None:
        self._line: queue.Queue[tuple[Future[Any], Callable[[], Any]] | None] = queue.Queue(maxsize=max(1, waiting))
        self._thread = threading.Thread(target=self._run, name="vitral-model", daemon=True)
        self._closed = False
        self._thread.start()

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        if self._closed:
            raise Refusal(503, "the server is shutting down", "start it again")
        try:
            self._line.put_nowait((future, job))
        except queue.Full:
            raise Refusal(503, "the model is busy and the line is full", "try again in a moment") from None
        return future

    def close(self) -> None:
        """Finish what runs, drop what waits."""
        self._closed = True
        while True:
            try:
                entry = self._line.get_nowait()
            except queue.Empty:
                break
            if entry is not None:
                entry[0].cancel()
        self._line.put(None)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while (entry := self._line.get()) is not None:
            future, job = entry
            if not future.set_running_or_notify_cancel():
                continue  # whoever asked has gone
            try:
                future.set_result(job())
            except BaseException as error:  # a job's failure is its caller's answer, never the end of the thread
                future.set_exception(error)
            del future, job, entry  # the result belongs to the caller: do not keep it alive until the next job comes


class Memory:
    """A bounded store: the least recently used entries leave when the bytes of all exceed `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any | None:
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        with self._lock:
            if key in self._entries:
                self.size -= self._entries.pop(key)[1]
            self._entries[key] = (value, size)
            self.size += size
            while self.size > self.limit and len(self._entries) > 1:
                self.size -= self._entries.popitem(last=False)[1][1]

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries
