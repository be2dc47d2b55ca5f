"""One thread that runs the model, a short line before it, and a memory of what it made."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from vitral.web.limits import Refusal


class Worker:
    """Runs jobs one after another: the model has one user at a time, and memory is bounded by one job.

    At most `waiting` jobs stand in line; the next is refused at once (503) rather than made to wait without end.
    """

    def __init__(self, waiting: int) -> None:
        self._thread = ThreadPoolExecutor(1, "vitral-model")
        self._places = threading.Semaphore(1 + max(1, waiting))  # one job runs, the others wait

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        if not self._places.acquire(blocking=False):
            raise Refusal(503, "the model is busy and the line is full", "try again in a moment")
        try:
            future = self._thread.submit(job)
        except RuntimeError:
            self._places.release()
            raise Refusal(503, "the server is shutting down", "start it again") from None
        future.add_done_callback(lambda _: self._places.release())
        return future

    def close(self) -> None:
        """Finish what runs, drop what waits."""
        self._thread.shutdown(cancel_futures=True)


class Memory:
    """A bounded store: the least recently used entries leave when the bytes of all exceed `limit`.

    Only the model's thread uses one, so it has no lock. cachetools has the same, but an exported page, which needs nothing beyond
    Vitral's own dependencies, would then need one more.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable) -> Any | None:
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        self.size += size - self._entries.pop(key, (None, 0))[1]
        self._entries[key] = (value, size)
        while self.size > self.limit and len(self._entries) > 1:
            self.size -= self._entries.popitem(last=False)[1][1]

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries
