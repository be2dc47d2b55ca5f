"""Bodies of requests on their way in: bounded in bytes, in time and, all uploads together, in number and bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.requests import Request

from vitral.web.server.limits import Limits, Refusal, too_large


@dataclass(eq=False)
class _Upload:
    began: float
    clock: asyncio.Timeout
    size: int = 0
    arrived: bool = False


class Uploads:
    """Who is uploading. When places run short, the upload that has kept the server waiting longest gives way; else one is told to wait."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._here: set[_Upload] = set()

    @asynccontextmanager
    async def receive(self, request: Request) -> AsyncIterator[bytes]:
        """The body of an upload, which holds its place until the block ends."""
        upload = _Upload(asyncio.get_running_loop().time(), asyncio.timeout(self.limits.read_seconds))
        self._make_room(upload)

        def count(size: int) -> None:
            upload.size = size
            self._make_room(upload)

        try:
            content = await _read(request, self.limits.upload, upload.clock, count)
            upload.arrived = True
            yield content
        finally:
            self._here.discard(upload)

    def _make_room(self, upload: _Upload) -> None:
        self._here.add(upload)
        now = asyncio.get_running_loop().time()
        while len(self._here) > self.limits.uploading or sum(each.size for each in self._here) > self.limits.arriving:
            slow = [each for each in self._here if each is not upload and not each.arrived and now - each.began > self.limits.grace_seconds]
            if not slow:
                self._here.discard(upload)
                raise Refusal(429, "too many uploads at once", "try again in a moment")
            first = min(slow, key=lambda each: each.began)
            self._here.discard(first)
            first.clock.reschedule(now)


async def _read(request: Request, limit: int, clock: asyncio.Timeout, count: Callable[[int], None]) -> bytes:
    """The body, but never more than `limit` bytes nor longer than `clock` allows; `count` gets the bytes that are here."""
    parts, size = [], 0
    try:
        async with clock:
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise too_large(limit)
                parts.append(part)
                count(size)
    except TimeoutError:
        raise Refusal(408, "the upload took too long", "try again on a faster line") from None
    return b"".join(parts)
