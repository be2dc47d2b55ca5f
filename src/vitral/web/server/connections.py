"""Connections that must get on: whoever keeps the server waiting has a deadline, and gives way to others when places run short."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

PER_ADDRESS = 64
"""Connections of one address: ten times what a browser opens."""
_TOTAL = 256
SECONDS = {"head": 10.0, "body": 40.0, "answer": float("inf"), "reading": 60.0}
"""How long each stage may last: sending a request's head, then its body (uploads have a deadline of their own before this one),
waiting for the server's answer, and reading it."""
_GIVING_WAY = {"head": 0, "body": 1, "reading": 1}
"""Who leaves first when places run short; who waits for the server stays."""
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Connection(H11Protocol):
    """uvicorn's connection with a deadline for each stage and a bound of connections per address.

    uvicorn's own `limit_concurrency` counts connections that have asked nothing yet, so that a few hundred half-sent requests close the
    server for everyone; here they are the first to go.
    """

    since = 0.0
    """When the present stage began."""
    _seen: tuple[Any, str] = (None, "head")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        everyone = {each for each in self.connections if isinstance(each, Connection)}
        neighbours = {each for each in everyone if each.address == self.address}
        for crowd, most in ((neighbours, PER_ADDRESS), (everyone, _TOTAL)):
            if len(crowd) > most and not self._make_room(crowd):
                self._end(BUSY)
                return
        self._watch()

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def stage(self) -> str:
        if self.cycle is None or self.cycle.response_complete:
            return "reading" if self.transport.get_write_buffer_size() else "head"
        if self.flow.write_paused:
            return "reading"
        return "body" if self.cycle.more_body else "answer"

    def _make_room(self, crowd: set[Connection]) -> bool:
        """End the connection of `crowd` that has kept the server waiting longest; False: all wait for the server."""
        leaving = [each for each in crowd if each is not self and each.stage in _GIVING_WAY]
        if not leaving:
            return False
        first = min(leaving, key=lambda each: (_GIVING_WAY[each.stage], each.since))
        self.connections.discard(first)  # its place is free now, not when the loop comes round to closing it
        first.transport.abort()
        return True

    def _watch(self) -> None:
        """Looks once a second whether the stage has changed, and ends what lasts too long: a drip of bytes is no new stage."""
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            return
        now = self.loop.time()
        if (seen := (self.cycle, self.stage)) != self._seen:
            self._seen, self.since = seen, now
        if now - self.since > SECONDS[self.stage]:
            self._end(_LATE if self.stage == "head" and self.cycle is None else b"")
            return
        self.loop.call_later(1.0, self._watch)

    def _end(self, words: bytes) -> None:
        if words:
            self.transport.write(words)
            self.transport.close()
            self.loop.call_later(1.0, self.transport.abort)
        else:
            self.transport.abort()
