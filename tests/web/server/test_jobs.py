from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from vitral.base.errors import FailedError
from vitral.base.progress import track
from vitral.web.server.jobs import LRUCache, Worker
from vitral.web.server.limits import Refusal


def test_jobs_run_one_after_another() -> None:
    worker = Worker(waiting=8)
    running, most = 0, 0

    def job() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.005)
        running -= 1
        return threading.current_thread().name

    futures = [worker.submit(job) for _ in range(8)]
    assert {future.result(timeout=5) for future in futures} == {"vitral-model_0"}
    assert most == 1
    worker.close()


def test_a_full_line_is_refused_at_once() -> None:
    worker = Worker(waiting=2)
    begun, go = threading.Event(), threading.Event()
    first = worker.submit(lambda: (begun.set(), go.wait(5)))
    assert begun.wait(5)
    waiting = [worker.submit(lambda: 1) for _ in range(2)]
    with pytest.raises(Refusal) as caught:
        worker.submit(lambda: 2)
    assert caught.value.status == 503
    go.set()
    first.result(timeout=5)
    assert [future.result(timeout=5) for future in waiting] == [1, 1]
    worker.close()


def test_a_failing_job_does_not_end_the_thread() -> None:
    worker = Worker(waiting=2)
    with pytest.raises(ZeroDivisionError):
        worker.submit(lambda: 1 // 0).result(timeout=5)
    assert worker.submit(lambda: 3).result(timeout=5) == 3
    worker.close()
    with pytest.raises(Refusal):
        worker.submit(lambda: 4)


def test_a_cancelled_job_is_not_run() -> None:
    worker = Worker(waiting=2)
    begun, go, ran = threading.Event(), threading.Event(), []
    first = worker.submit(lambda: (begun.set(), go.wait(5)))
    assert begun.wait(5)
    assert worker.submit(lambda: ran.append(1)).cancel()
    go.set()
    first.result(timeout=5)
    assert worker.submit(lambda: 5).result(timeout=5) == 5
    assert ran == []
    worker.close()


def test_closing_drops_what_waits() -> None:
    worker = Worker(waiting=2)
    begun, go = threading.Event(), threading.Event()
    first = worker.submit(lambda: (begun.set(), go.wait(5)))
    waiting = worker.submit(lambda: 1)
    assert begun.wait(5)
    threading.Timer(0.05, go.set).start()
    worker.close()
    assert first.done() and not first.cancelled() and waiting.cancelled()


def test_a_cancelled_job_gives_its_place_back() -> None:
    worker = Worker(waiting=1)
    begun, go = threading.Event(), threading.Event()
    worker.submit(lambda: (begun.set(), go.wait(5)))
    assert begun.wait(5)
    assert worker.submit(lambda: 1).cancel()
    last = worker.submit(lambda: 2)
    with pytest.raises(Refusal, match="full"):
        worker.submit(lambda: 3)
    go.set()
    assert last.result(timeout=5) == 2
    worker.close()


def long_job(steps: int, seen: list[str], begun: threading.Event) -> Callable[[], str]:
    def work() -> str:
        for _ in track(range(steps), "Covering"):
            begun.set()
            seen.append("step")
            time.sleep(0.02)
        return "whole"

    return work


def test_a_long_job_lets_others_through_and_finishes() -> None:
    worker, seen, begun = Worker(waiting=4), [], threading.Event()
    long = worker.submit(long_job(20, seen, begun), long=True)
    assert begun.wait(5)
    assert worker.submit(lambda: seen.append("quick") or 7).result(timeout=5) == 7
    assert not long.done(), "the quick one did not wait for it"
    assert long.result(timeout=5) == "whole"
    assert seen.count("step") == 20 and seen.index("quick") < 18
    assert worker.long is None
    worker.close()


def test_a_long_job_can_be_cancelled_while_it_runs_and_tells_how_far_it_is() -> None:
    worker, seen, begun = Worker(waiting=4), [], threading.Event()
    long = worker.submit(long_job(1000, seen, begun), long=True)
    assert begun.wait(5)
    time.sleep(0.1)
    assert worker.long and worker.long.progress and 0 < worker.long.progress.done < worker.long.progress.total == 1000
    long.cancel()
    with pytest.raises(Refusal, match="stopped"):
        long.result(timeout=5)
    assert len(seen) < 100
    assert worker.submit(lambda: 3).result(timeout=5) == 3
    worker.close()


def test_closing_ends_a_long_job_at_its_next_step() -> None:
    worker, seen, begun = Worker(waiting=4), [], threading.Event()
    long = worker.submit(long_job(1000, seen, begun), long=True)
    assert begun.wait(5)
    began = time.monotonic()
    worker.close()
    assert long.done() and time.monotonic() - began < 2


def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    memory = LRUCache(100)
    for index in range(10):
        memory.put(index, f"value {index}", 30)
        memory.get(0)
    assert memory.size <= 100
    assert 0 in memory, "what was used last stays"
    assert 1 not in memory
    assert len(memory) == 3
    memory.put(0, "new", 10)
    assert memory.get(0) == "new"
    assert memory.size == 70
    assert memory.get("unknown") is None


def test_what_apple_s_gpu_cannot_do_is_told_in_one_line() -> None:
    def work() -> None:
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.")

    worker = Worker(waiting=1)
    with pytest.raises(FailedError, match="--device"):
        worker.submit(work).result(timeout=5)
    worker.close()
