from __future__ import annotations

import threading
import time

import pytest

from vitral.web.jobs import Memory, Worker
from vitral.web.limits import Refusal


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
    with pytest.raises(Refusal, match="the line is full"):
        worker.submit(lambda: 3)
    go.set()
    assert last.result(timeout=5) == 2
    worker.close()


def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    memory = Memory(100)
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
