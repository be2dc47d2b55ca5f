"""Downloads from a server that breaks off."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vitral.base.errors import DataError
from vitral.data.sources.download import download

CONTENT = np.random.default_rng(0).bytes(300_000)
DIGEST = "md5:" + hashlib.md5(CONTENT).hexdigest()


class Server:
    """Sends CONTENT, at most `piece` bytes per connection; knows what it was asked for."""

    def __init__(self) -> None:
        self.piece: int | None = None
        self.ranges = True
        self.status = 0
        self.asked: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                outer.asked.append(wanted)
                if outer.status:
                    self.send_error(outer.status)
                    return
                start = int(wanted.split("=")[1].rstrip("-")) if wanted and outer.ranges else 0
                if start >= len(CONTENT):
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(CONTENT) - start))
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
                self.end_headers()
                self.wfile.write(CONTENT[start : start + outer.piece] if outer.piece else CONTENT[start:])

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/set.bin"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_cut_connections_are_resumed(server: Server, tmp_path: Path) -> None:
    server.piece = 40_000
    path = download(server.url, tmp_path / "deep" / "set.bin", DIGEST, pause=0)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, *(f"bytes={n * 40_000}-" for n in range(1, 8))]
    assert not list(path.parent.glob("*.part"))


def test_another_process_goes_on_where_one_stopped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.bin.part").write_bytes(CONTENT[:123_456])
    download(server.url, tmp_path / "set.bin", DIGEST, pause=0)
    assert server.asked == ["bytes=123456-"]
    assert (tmp_path / "set.bin").read_bytes() == CONTENT


def test_what_is_there_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.bin").write_bytes(CONTENT)
    download(server.url, tmp_path / "set.bin", DIGEST)
    assert server.asked == []
    (tmp_path / "set.bin").write_bytes(b"damaged")
    download(server.url, tmp_path / "set.bin", DIGEST)
    assert (tmp_path / "set.bin").read_bytes() == CONTENT


def test_servers_without_ranges_start_anew(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "set.bin.part").write_bytes(CONTENT[:1000])
    assert download(server.url, tmp_path / "set.bin", DIGEST, pause=0).read_bytes() == CONTENT


def test_a_part_longer_than_the_file_starts_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.bin.part").write_bytes(CONTENT + b"more")
    with pytest.raises(DataError, match="HTTP 416"):
        download(server.url, tmp_path / "set.bin", DIGEST, pause=0)
    assert download(server.url, tmp_path / "set.bin", DIGEST, pause=0).read_bytes() == CONTENT


def test_wrong_content_is_refused_and_removed(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="arrived damaged"):
        download(server.url, tmp_path / "set.bin", "sha256:" + "0" * 64, pause=0)
    assert not list(tmp_path.iterdir())


def test_errors_say_what_is_kept(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(DataError, match="HTTP 404"):
        download(server.url, tmp_path / "set.bin", DIGEST, pause=0)
    server.status = 503
    (tmp_path / "set.bin.part").write_bytes(CONTENT[:1000])
    server.asked.clear()
    with pytest.raises(DataError, match="1,000 bytes"):
        download(server.url, tmp_path / "set.bin", DIGEST, pause=0)
    assert len(server.asked) == 5
    with pytest.raises(DataError, match="address"):
        download("file:///etc/passwd", tmp_path / "other.bin", DIGEST)
