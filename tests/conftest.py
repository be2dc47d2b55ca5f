from __future__ import annotations

import errno
import importlib.util
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import IO

import pytest
from tests.scripts import load_script

ROOT = Path(__file__).parents[1]
collect_ignore = [] if importlib.util.find_spec("playwright") else ["browser"]
"""`make test-browser` installs Playwright, `make test` has no use for it."""


@pytest.fixture(scope="session")
def make_reference() -> ModuleType:
    """The script that writes docs/reference."""
    return load_script(ROOT / "docs/make_reference.py")


@pytest.fixture
def full_disk() -> Callable[[IO[str]], IO[str]]:
    """A file that is open for writing, on a disk without room from now on."""

    class Full:
        def __init__(self, file: IO[str]) -> None:
            self.file, self.name = file, file.name

        def write(self, _: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            self.file.close()

    return Full  # type: ignore[return-value]


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], object]], int]]:
    """Runs what would serve until Ctrl-C in a thread: a real server; gives its port, and stops it after the test."""
    import uvicorn

    begun: queue.Queue[tuple[uvicorn.Server, int]] = queue.Queue()
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    class Declared(uvicorn.Server):
        def run(self, sockets: list | None = None) -> None:
            assert sockets
            begun.put((self, sockets[0].getsockname()[1]))
            super().run(sockets)

    monkeypatch.setattr(uvicorn, "Server", Declared)

    def start(serve: Callable[[], object]) -> int:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        server, port = begun.get(timeout=60)
        running.append((server, thread))
        return port

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(timeout=10)
        assert not thread.is_alive()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-messages", action="store_true", help="write what tests/messages.txt should say, instead of comparing")
