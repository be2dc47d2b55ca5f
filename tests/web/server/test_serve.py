from __future__ import annotations

import re
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import pytest

from vitral.base.errors import UsageError
from vitral.web.server import serve as serving
from vitral.web.session import Session


def test_the_next_free_port_is_taken() -> None:
    first = serving.bind("127.0.0.1", None)
    second = serving.bind("127.0.0.1", None)
    try:
        ports = [each.getsockname()[1] for each in (first, second)]
        assert ports[0] != ports[1]
        with pytest.raises(UsageError, match="listen"):
            serving.bind("127.0.0.1", ports[0])
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(UsageError, match="listen"):
        serving.bind("127.0.0.1", port)


def test_addresses() -> None:
    assert serving.address_of("127.0.0.1", 8642, None) == "http://127.0.0.1:8642/"
    assert serving.address_of("::1", 1, None) == "http://[::1]:1/"
    assert re.fullmatch(r"http://[^/]+:8642/\?token=abc", serving.address_of("0.0.0.0", 8642, "abc"))


def test_the_printed_address_of_all_addresses_is_one_that_answers(session: Session, live: Callable, capsys: pytest.CaptureFixture) -> None:
    """This machine's name need not resolve anywhere."""
    live(lambda: serving.serve(session, "0.0.0.0", 0, open_page=False))
    (address,) = re.findall(r"http://\S+", capsys.readouterr().err)
    if serving.outward_address(socket.AF_INET) is None:
        pytest.skip("this machine has no address but its own")
    assert re.fullmatch(r"[\d.]+", urlsplit(address).hostname or "")
    assert httpx.get(address, follow_redirects=True).status_code == 200


@pytest.mark.parametrize(("host", "asks"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_it_serves_at_the_address_that_it_prints_and_opens(
    session: Session, live: Callable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], host: str, asks: bool
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(serving.webbrowser, "open", opened.append)
    port = live(lambda: serving.serve(session, host, 0))
    (address,) = opened
    assert address in capsys.readouterr().err
    here = urlsplit(address)._replace(netloc=f"127.0.0.1:{port}")  # 0.0.0.0 is printed as this machine's name, which need not resolve
    assert urlsplit(address).port == port and ("token=" in here.query) is asks
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", follow_redirects=True) as visitor:
        assert visitor.get("/api/session").status_code == (401 if asks else 200)
        assert "<title>" in visitor.get(here.geturl()).text
        answer = visitor.get("/api/session")
        assert answer.json()["models"][0]["name"] == "tiny"
        assert "server" not in answer.headers
        assert visitor.get("/api/session", headers={"host": "evil.example"}).status_code == 400


def test_the_page_is_opened_only_when_wanted(session: Session, live: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(serving.webbrowser, "open", opened.append)
    live(lambda: serving.serve(session, "127.0.0.1", 0, open_page=False))
    assert opened == []
