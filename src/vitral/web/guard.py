"""The door: who may ask, and what every answer carries. Plain ASGI, so nothing gets past it."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from vitral.web.limits import host_allowed, token_matches

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

COOKIE = "vitral_token"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
log = logging.getLogger("vitral.web")


class Guard:
    """Checks the Host header, the origin of requests that change something, and the token where one is asked for."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], host: str, token: str | None) -> None:
        self.app, self.host, self.token = app, host, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no websockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        started = False

        async def dressed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                extra = {"cache-control": "no-store", **HEADERS}
                present = {name.lower() for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in extra.items() if name.encode() not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        try:
            if not await self._turned_away(scope, dressed):
                await self.app(scope, receive, dressed)
        except Exception:
            # The reason goes to the terminal, never into the answer.
            log.exception("the request %s %s failed", scope.get("method"), scope.get("path"))
            if not started:
                await answer(dressed, 500, "the server failed on this request", "its terminal shows the reason")

    async def _turned_away(self, scope: Scope, send: Send) -> bool:
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            key = name.decode("latin-1").lower()
            if key == "host" and "host" in headers:
                return await answer(send, 400, "two Host headers", "send one")
            headers[key] = value.decode("latin-1")
        if not host_allowed(headers.get("host"), self.host):
            return await answer(send, 400, "this server does not answer to that host name", "open the address that vitral explore printed")
        if scope["method"] not in ("GET", "HEAD") and not _same_origin(headers):
            return await answer(send, 403, "requests from other pages are refused", "use the explorer's own page")
        if self.token is None:
            return False
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        if scope["path"] == "/" and token_matches(query.get("token", [""])[0], self.token):
            # The token moves from the address into a cookie, so that links can be shared without it.
            cookie = f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict"
            return await answer(send, 303, "", "", {"location": "/", "set-cookie": cookie})
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if token_matches(bearer, self.token) or token_matches(_cookie(headers.get("cookie", "")), self.token):
            return False
        return await answer(send, 401, "this server asks for its token", "open the address with ?token=… that vitral explore printed")


async def answer(send: Send, status: int, error: str, hint: str, headers: dict[str, str] | None = None) -> bool:
    """A small JSON answer; True, because the request ends here."""
    body = json.dumps({"error": error, "hint": hint}).encode()
    pairs = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    pairs += [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
    return True


def _same_origin(headers: dict[str, str]) -> bool:
    """Browsers say where a request comes from; other programs say nothing."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    except ValueError:
        return False


def _cookie(header: str) -> str | None:
    try:
        morsel = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value
