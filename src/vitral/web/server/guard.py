"""The door: who may ask, and what every answer carries. Plain ASGI, so nothing gets past it."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_COOKIE = "vitral_token"
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_TOKEN_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Vitral explorer</title></head>
<body>
<h1>This explorer asks for its token</h1>
<p>Whoever started it sees an address that ends in <code>?token=…</code> in the terminal. Ask for that address and open it:
afterwards this one works too.</p>
</body>
</html>
"""
log = logging.getLogger("vitral.web")


class Guard:
    """Checks the Host header, the origin of requests that change something, and the token where one is asked for."""

    def __init__(self, app: ASGIApp, host: str, token: str | None) -> None:
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
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await (self._refusal(Request(scope)) or self.app)(scope, receive, dressed)
        except asyncio.CancelledError:
            # The server is stopped while this runs; passed on, it would be reported as a failure.
            if not started:
                await answer(503, "the server is shutting down", "start it again")(scope, receive, dressed)
        except Exception:
            # The reason goes to the terminal, never into the answer.
            log.exception("the request %s %s failed", scope.get("method"), scope.get("path"))
            if not started:
                await answer(500, "the server failed on this request", "its terminal shows the reason")(scope, receive, dressed)

    def _refusal(self, request: Request) -> Response | None:
        """What whoever asks gets instead of the page; None: come in."""
        if len(request.headers.getlist("host")) > 1:
            return answer(400, "two Host headers", "send one")
        if not host_allowed(request.headers.get("host"), self.host):
            return answer(400, "this server does not answer to that host name", "open the address that vitral explore printed")
        if request.method not in ("GET", "HEAD") and not _same_origin(request):
            return answer(403, "requests from other pages are refused", "use the explorer's own page")
        if self.token is None:
            return None
        if request.url.path == "/" and token_matches(request.query_params.get("token"), self.token):
            # The token moves from the address into a cookie, so that links can be shared without it.
            welcome = RedirectResponse("/", 303)
            welcome.set_cookie(_COOKIE, self.token, httponly=True, samesite="strict")
            return welcome
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token_matches(bearer, self.token) or token_matches(request.cookies.get(_COOKIE), self.token):
            return None
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(_TOKEN_PAGE, 401)
        return answer(401, "this server asks for its token", "open the address with ?token=… that vitral explore printed")


def answer(status: int, error: str, hint: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Every refusal looks like this."""
    return JSONResponse({"error": error, "hint": hint}, status, headers)


def _same_origin(request: Request) -> bool:
    """Browsers say where a request comes from; other programs say nothing."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_allowed(header: str | None, host: str) -> bool:
    """Is this Host header one that the server was started for?

    A page elsewhere can point its own name at 127.0.0.1 (DNS rebinding); its name then stands here. On loopback only loopback
    names pass; on other addresses also number addresses, the given name and this machine's name, and a token is asked for as well.

    Starlette's TrustedHostMiddleware compares with a fixed list, so it cannot say "any number address"; it looks at the first of two
    Host headers, and older versions take [::1]:8642 for a host named "[".
    """
    name = _without_port((header or "").strip().lower())
    if not name:
        return False
    if is_loopback(name):
        return True
    if is_loopback(host):
        return False
    try:
        ipaddress.ip_address(name)
        return True
    except ValueError:
        return name in (host.lower(), socket.gethostname().lower(), socket.getfqdn().lower())


def token_matches(offered: str | None, token: str) -> bool:
    return offered is not None and hmac.compare_digest(offered.encode("utf-8", "replace"), token.encode())


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host
