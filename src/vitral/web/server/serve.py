"""Start the explorer on this machine and say where it is."""

from __future__ import annotations

import secrets
import socket
import webbrowser

import uvicorn

from vitral.base.errors import UsageError
from vitral.base.progress import say
from vitral.web.server.connections import Connection
from vitral.web.server.guard import is_loopback
from vitral.web.server.routes import make_app
from vitral.web.session import Session

_PORT = 8642
_TRIES = 20


def serve(session: Session, host: str = "127.0.0.1", port: int | None = None, open_page: bool = True) -> None:
    """Serve until interrupted. Beyond this machine only with a token, which the printed address carries."""
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    listening = bind(host, port)
    address = address_of(host, listening.getsockname()[1], token)
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(session, host=host, token=token),
            log_level="warning",
            server_header=False,
            http=Connection,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=1,  # Ctrl-C ends what runs
        )
    )
    say(f"The explorer is at {address}  (Ctrl-C stops it)")
    if open_page:
        webbrowser.open(address)  # the socket listens already: the browser waits for the server
    try:
        server.run(sockets=[listening])
    finally:
        listening.close()


def bind(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a wish the usual port, or one of the next."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wished = [port] if port is not None else [*range(_PORT, _PORT + _TRIES), 0]
    reason = ""
    for number in wished:
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, so that asyncio turns Nagle off
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
            listening.listen(128)
            return listening
        except (OSError, OverflowError) as error:
            listening.close()
            reason = str(error)
    raise UsageError(f"cannot listen on {host} port {wished[0]} ({reason})", "choose another --port or --host")


def address_of(host: str, port: int, token: str | None) -> str:
    if host in ("0.0.0.0", "::"):  # every address of this machine: the one by which others reach it
        host = outward_address(socket.AF_INET6 if host == "::" else socket.AF_INET) or socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")


def outward_address(family: socket.AddressFamily) -> str | None:
    """The number by which other machines reach this one. Nothing is sent: connecting a datagram socket only chooses a route."""
    elsewhere = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}[family]  # reserved for documentation: nobody's address
    with socket.socket(family, socket.SOCK_DGRAM) as route:
        try:
            route.connect((elsewhere, 9))
            return str(route.getsockname()[0])
        except OSError:
            return None
