"""Slow and half-hearted clients against a real server."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from tests.web.conftest import png

from vitral.web.server import connections, serve
from vitral.web.session import Session

HALF = b"GET /api/session HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"


@pytest.fixture
def port(session: Session, live: Callable) -> int:
    return live(lambda: serve.serve(session, "127.0.0.1", 0, open_page=False))


@contextmanager
def asked(port: int, words: bytes, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            one.sendall(words)
            found.append(one)
        yield found


def test_half_sent_requests_do_not_close_the_server(port: int) -> None:
    with asked(port, HALF, 260):
        began = time.monotonic()
        for _ in range(5):
            assert httpx.get(f"http://127.0.0.1:{port}/api/session", timeout=5).status_code == 200
        assert time.monotonic() - began < 3


def test_a_request_must_be_complete_in_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.SECONDS, "head", 1.0)
    with asked(port, HALF, 1) as (one,):
        began = time.monotonic()
        for _ in range(30):  # a drip of bytes gains no time
            try:
                one.sendall(b"a")
                time.sleep(0.1)
            except OSError:
                break
        try:
            answer = one.recv(1000)
        except ConnectionError:
            answer = b""
        assert answer == b"" or answer.startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began < 6


def test_an_idle_client_is_told_that_it_was_late(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.SECONDS, "head", 1.0)
    with asked(port, HALF, 1) as (one,):
        assert one.recv(1000).startswith(b"HTTP/1.1 408")
        assert one.recv(1000) == b""


def test_slow_uploads_do_not_lock_uploading(port: int) -> None:
    slow = b"POST /api/pictures HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-type: image/png\r\ncontent-length: 100000\r\n\r\n" + b"x" * 100
    with asked(port, slow, 40):
        time.sleep(0.3)
        for seed in range(100, 104):
            address, headers = f"http://127.0.0.1:{port}/api/pictures", {"content-type": "image/png"}
            answer = httpx.post(address, content=png(seed), headers=headers, timeout=10)
            assert answer.status_code == 200, answer.text


def test_one_address_has_so_many_places(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who keep the server waiting give way, the oldest first."""
    monkeypatch.setattr(connections, "PER_ADDRESS", 4)
    with asked(port, HALF, 6) as clients:
        for gone in clients[:2]:
            with pytest.raises(ConnectionError):
                if not gone.recv(1):
                    raise ConnectionResetError
        clients[-1].sendall(b": 1\r\nConnection: close\r\n\r\n")
        assert clients[-1].recv(1000).startswith(b"HTTP/1.1 200")


def test_who_does_not_read_the_answer_is_let_go(port: int, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.SECONDS, "reading", 1.0)
    address = b"/api/models/0/pictures/" + session.initial[0]["picture"].encode() + b"/trace"
    ask = b"GET " + address + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        one.connect(("127.0.0.1", port))
        one.settimeout(20)
        one.sendall(ask * 400)  # many answers, none of them read
        time.sleep(4)
        assert httpx.get(f"http://127.0.0.1:{port}/api/session").status_code == 200
        with pytest.raises(OSError):
            while True:
                one.sendall(ask)
                time.sleep(0.01)


def test_answers_on_a_kept_connection_come_at_once(port: int) -> None:
    """Head and body are two packets: without TCP_NODELAY the second waits 40 ms for the first one's acknowledgement."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        client.get("/api/session")
        times = []
        for _ in range(20):
            began = time.perf_counter()
            client.get("/static/style.css")
            times.append(time.perf_counter() - began)
    assert sorted(times)[10] < 0.025
