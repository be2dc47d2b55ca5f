"""Pictures of strangers are decoded in a process of their own, which has bounds of time and memory and can be ended.

The process runs this file: `python -m vitral.web.server.decoder` reads a length and a picture from its input and answers with a line
of JSON and the pixels, until its input closes.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO

from PIL import Image

from vitral.base.errors import DataError, VitralError
from vitral.data.images.decode import decode
from vitral.web.server.limits import Limits, Refusal

MEMORY = 3 * 2**30
"""Bytes of address space of the process: several times what the largest allowed picture needs."""
_LENGTH = struct.Struct("<Q")
SAVE_AGAIN = "save it again as PNG or JPEG, or choose another one"


class Decoders:
    """A few decoding processes, each behind a thread; whoever takes longer than allowed is ended and replaced."""

    def __init__(self, limits: Limits) -> None:
        self.seconds = limits.decode_seconds
        self._mine = threading.local()
        self._all: list[subprocess.Popen[bytes]] = []
        self._threads = ThreadPoolExecutor(limits.decoders, "vitral-decode")

    def submit(self, content: bytes) -> Future[Image.Image]:
        """The picture that `content` holds; a Refusal where it holds none, or one that takes too long."""
        return self._threads.submit(self._decode, content)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._all:
            process.kill()
        self._threads.shutdown()
        for process in self._all:
            _leave(process)

    def _decode(self, content: bytes) -> Image.Image:
        process = self._process()
        assert process.stdin and process.stdout
        late = threading.Timer(self.seconds, process.kill)
        late.start()
        try:
            process.stdin.write(_LENGTH.pack(len(content)) + content)
            process.stdin.flush()
            header = json.loads(process.stdout.readline())
            if "error" in header:
                raise Refusal(422, header["error"], SAVE_AGAIN)
            size = header["size"][0] * header["size"][1] * len(header["mode"])
            pixels = process.stdout.read(size)
            if len(pixels) != size:
                raise EOFError
        except (OSError, EOFError, ValueError) as error:  # the process is gone: too slow, out of memory, or its decoder crashed
            if isinstance(error, Refusal):
                raise
            process.kill()
            process.wait()  # the next picture must find it gone, not going
            raise Refusal(422, f"the picture could not be decoded within {self.seconds:g} s", SAVE_AGAIN) from None
        finally:
            late.cancel()
        return Image.frombytes(header["mode"], tuple(header["size"]), pixels)

    def _process(self) -> subprocess.Popen[bytes]:
        mine: subprocess.Popen[bytes] | None = getattr(self._mine, "process", None)
        if mine is None or mine.poll() is not None:
            if mine is not None:
                self._all.remove(mine)
                _leave(mine)
            path = os.pathsep.join(filter(None, sys.path))
            command = [sys.executable, "-m", "vitral.web.server.decoder"]
            mine = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
            )
            self._mine.process = mine
            self._all.append(mine)
            assert mine.stdout
            mine.stdout.readline()  # it says that it is ready: starting is no part of a picture's time
        return mine


def _leave(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()
    process.wait()


def answer(pictures: BinaryIO, out: BinaryIO) -> None:
    """The process: one picture after another, until there is no more."""
    out.write(b"ready\n")
    out.flush()
    while len(head := pictures.read(_LENGTH.size)) == _LENGTH.size:
        content = pictures.read(_LENGTH.unpack(head)[0])
        try:
            image = decode(content, "picture")
            if not isinstance(image, Image.Image):
                raise DataError("this is not a picture that can be read here")
            out.write(json.dumps({"mode": image.mode, "size": image.size}).encode() + b"\n" + image.tobytes())
        except (VitralError, MemoryError) as error:
            out.write(json.dumps({"error": getattr(error, "message", "") or "the picture needs too much memory"}).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system can bound it
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answer(sys.stdin.buffer, sys.stdout.buffer)
