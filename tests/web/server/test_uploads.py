from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from vitral.web.server.limits import Limits, Refusal
from vitral.web.server.uploads import Uploads


class Body:
    """A request of which the test sends the parts."""

    def __init__(self) -> None:
        self.parts: asyncio.Queue[bytes] = asyncio.Queue()

    async def stream(self) -> AsyncIterator[bytes]:
        while part := await self.parts.get():
            yield part


async def take(uploads: Uploads, body: Body) -> bytes | int:
    try:
        async with uploads.receive(body) as content:  # type: ignore[arg-type]
            return content
    except Refusal as refusal:
        return refusal.status


async def begun(uploads: Uploads, part: bytes = b"x") -> tuple[Body, asyncio.Task[bytes | int]]:
    body = Body()
    task = asyncio.create_task(take(uploads, body))
    await body.parts.put(part)
    await asyncio.sleep(0.01)
    return body, task


@pytest.mark.parametrize(("limits", "part"), [({"uploading": 3}, b"x"), ({"arriving": 30}, b"x" * 10)])
def test_the_slowest_gives_way_once_it_had_its_time(limits: dict, part: bytes) -> None:
    async def play() -> None:
        uploads = Uploads(Limits(grace_seconds=0.1, **limits))
        slow = [await begun(uploads, part) for _ in range(3)]
        assert await (await begun(uploads, part))[1] == 429, "all have just come: one must wait"
        await asyncio.sleep(0.15)
        body, task = await begun(uploads, part)
        assert await slow[0][1] == 408, "the one that came first gives way"
        assert not slow[1][1].done() and not slow[2][1].done()
        await body.parts.put(b"")
        assert await task == part
        for other, _ in slow[1:]:
            await other.parts.put(b"")
        assert [await task for _, task in slow[1:]] == [part, part]
        assert not uploads._here

    asyncio.run(play())


def test_an_upload_that_has_arrived_keeps_its_place() -> None:
    async def play() -> None:
        uploads = Uploads(Limits(uploading=1, grace_seconds=0))
        body = Body()
        await body.parts.put(b"whole")
        await body.parts.put(b"")
        async with uploads.receive(body) as content:  # type: ignore[arg-type]
            await asyncio.sleep(0.01)
            assert await (await begun(uploads))[1] == 429
        assert content == b"whole"

    asyncio.run(play())


def test_bytes_and_time_are_bounded() -> None:
    async def play() -> None:
        assert await (await begun(Uploads(Limits(upload=5)), b"123456"))[1] == 413
        assert await (await begun(Uploads(Limits(read_seconds=0.05))))[1] == 408

    asyncio.run(play())
