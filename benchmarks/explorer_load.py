"""The explorer under load, on this machine alone: many clients, slow clients, a thousand uploads in a row.

    python benchmarks/explorer_load.py [--weights vit_tiny_patch16_224.safetensors] [--clients 50] [--requests 1000] [--uploads 1000]

The server is a process of its own, so that its memory and its answers are not mixed with those of the clients. Every part ends after
`--seconds` at the latest and says how far it came.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from vitral.base.device import describe_machine

HOST = "127.0.0.1"
HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"
SLOW = b"POST /api/pictures HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-type: image/png\r\ncontent-length: 100000\r\n\r\nx"
PNG = {"content-type": "image/png"}


def photograph(seed: int, side: int = 320) -> bytes:
    rng = np.random.default_rng(seed)
    out = io.BytesIO()
    small = Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8))
    small.resize((side, side), Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
    return out.getvalue()


def serve(weights: str | None) -> None:
    """The server's process."""
    from vitral.build import create
    from vitral.web.server.serve import serve
    from vitral.web.session import Session
    from vitral.weights.load import load

    session = Session({"ti/16": load(weights) if weights else create("ti/16")})
    session.add_initial(photograph(0), "first.jpg")
    serve(session, HOST, 0, open_page=False)


def start(weights: str | None) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, __file__, "--serve", *(["--weights", weights] if weights else [])]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr
    for line in server.stderr:
        if "The explorer is at" in line:
            threading.Thread(target=server.stderr.read, daemon=True).start()  # an unread pipe would fill and stop it
            return server, int(line.split(":")[2].split("/")[0])
    raise SystemExit("the server did not start")


def resident(server: subprocess.Popen[str]) -> float:
    """Megabytes of memory that the server holds (Linux)."""
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Client:
    """One connection that is kept, and opened again where the server has closed it."""

    def __init__(self, port: int) -> None:
        self.line = http.client.HTTPConnection(HOST, port, timeout=60)

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        for _ in range(2):
            try:
                self.line.request(method, path, body, headers or {})
                answer = self.line.getresponse()
                return answer.status, answer.read()
            except (http.client.HTTPException, OSError):
                self.line.close()
        return 0, b""


def crowd(clients: int, each: Callable[[int, Callable[[float, int], None]], None]) -> dict[str, float]:
    """Run `each(number, note)` in as many threads; what it notes becomes figures."""
    times, statuses, began = [], Counter(), time.perf_counter()

    def note(seconds: float, status: int) -> None:
        times.append(seconds)
        statuses[status] += 1

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(lambda number: each(number, note), range(clients)))
    ordered = sorted(times)
    refused = sum(count for status, count in statuses.items() if status in (0, 408, 429, 503))
    return {
        "requests": len(times),
        "p50, ms": 1000 * statistics.median(ordered),
        "p99, ms": 1000 * ordered[int(0.99 * (len(ordered) - 1))],
        "refused, %": 100 * refused / len(times),
        "a second": len(times) / (time.perf_counter() - began),
        "other than 200": sum(statuses.values()) - statuses[200],
    }


def many_clients(port: int, clients: int, requests: int, seconds: float) -> dict[str, float]:
    """What a page asks: mostly answers that are remembered, sometimes new work for the model."""
    session = json.loads(Client(port).ask("GET", "/api/session")[1])
    picture = f"/api/models/0/pictures/{session['pictures'][0]['picture']}"
    paths = ["/api/session", "/", "/static/main.js", f"{picture}/map?method=rollout", "/api/models/0/figures"]
    end = time.monotonic() + seconds

    def each(number: int, note: Callable[[float, int], None]) -> None:
        client = Client(port)
        for index in range(requests):
            if time.monotonic() > end:
                return
            path = paths[(number + index) % len(paths)]
            if index % 200 == 100:  # a class that nobody asked about yet
                path = f"{picture}/map?method=gradcam&target={(number * 20 + index // 200) % 1000}"
            began = time.perf_counter()
            status, _ = client.ask("GET", path)
            note(time.perf_counter() - began, status)

    return crowd(clients, each)


def uploads_in_a_row(port: int, count: int, seconds: float) -> dict[str, float]:
    end = time.monotonic() + seconds

    def each(_: int, note: Callable[[float, int], None]) -> None:
        client = Client(port)
        for seed in range(count):
            if time.monotonic() > end:
                return
            content = photograph(1 + seed)
            began = time.perf_counter()
            status, _answer = client.ask("POST", "/api/pictures", content, PNG)
            note(time.perf_counter() - began, status)

    return crowd(1, each)


def uploads_at_once(port: int, clients: int, count: int) -> dict[str, float]:
    contents = [photograph(100_000 + seed) for seed in range(clients)]

    def each(number: int, note: Callable[[float, int], None]) -> None:
        client = Client(port)
        for _ in range(count):
            began = time.perf_counter()
            status, _ = client.ask("POST", "/api/pictures", contents[number] + bytes([_, number]), PNG)
            note(time.perf_counter() - began, status)

    return crowd(clients, each)


def beside(port: int, words: bytes, count: int, requests: int) -> dict[str, float]:
    """A patient client beside `count` that never finish what they began to say."""
    held = []
    try:
        for _ in range(count):
            line = socket.create_connection((HOST, port), timeout=10)
            line.sendall(words)
            held.append(line)

        def each(_: int, note: Callable[[float, int], None]) -> None:
            for index in range(requests):
                client, began = Client(port), time.perf_counter()
                content = photograph(200_000 + index)
                status, _answer = client.ask("POST", "/api/pictures", content, PNG) if index % 2 else client.ask("GET", "/api/session")
                note(time.perf_counter() - began, status)
                client.line.close()

        return crowd(1, each)
    finally:
        for line in held:
            line.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", help="trained ViT-Ti/16 weights; else fresh ones")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--requests", type=int, default=1000, help="of each client")
    parser.add_argument("--uploads", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=240, help="the most that a part may take")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.serve:
        serve(flags.weights)
        return 0
    server, port = start(flags.weights)
    clients, requests, most = flags.clients, flags.requests, flags.seconds
    figures: dict[str, dict[str, float]] = {}
    try:
        Client(port).ask("POST", "/api/pictures", photograph(1), PNG)
        for name, part in {
            f"{flags.uploads} uploads in a row": lambda: uploads_in_a_row(port, flags.uploads, most),
            f"{clients} clients × {requests} requests": lambda: many_clients(port, clients, requests, most),
            f"{clients} × 4 uploads at once": lambda: uploads_at_once(port, clients, 4),
            "beside 260 half-sent requests": lambda: beside(port, HALF, 260, 40),
            "beside 40 slow uploads": lambda: beside(port, SLOW, 40, 40),
        }.items():
            before = resident(server)
            figures[name] = part() | {"MB before": before, "MB after": resident(server)}
            print(name + ": " + ", ".join(f"{key} {value:.4g}" for key, value in figures[name].items()), flush=True)
    finally:
        server.terminate()
        server.wait(20)
    print(json.dumps({"figures": figures, "machine": describe_machine()}))
    return 0 if all(part["refused, %"] == 0 for part in figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
