from __future__ import annotations

import re

import pytest

from vitral.base.errors import UsageError
from vitral.web import serve as serving
from vitral.web.session import Session


def test_the_next_free_port_is_taken() -> None:
    first = serving.bind("127.0.0.1", None)
    second = serving.bind("127.0.0.1", None)
    try:
        ports = [each.getsockname()[1] for each in (first, second)]
        assert ports[0] != ports[1]
        with pytest.raises(UsageError, match="cannot listen"):
            serving.bind("127.0.0.1", ports[0])
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(UsageError, match="cannot listen"):
        serving.bind("127.0.0.1", port)


def test_addresses() -> None:
    assert serving.address_of("127.0.0.1", 8642, None) == "http://127.0.0.1:8642/"
    assert serving.address_of("::1", 1, None) == "http://[::1]:1/"
    assert re.fullmatch(r"http://[^/]+:8642/\?token=abc", serving.address_of("0.0.0.0", 8642, "abc"))


@pytest.mark.parametrize(("host", "asks"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_serving_prints_and_opens_the_address(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], host: str, asks: bool
) -> None:
    import uvicorn

    opened: list[str] = []
    monkeypatch.setattr(serving.webbrowser, "open", opened.append)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    serving.serve(session, host, 0)
    assert opened[0] in capsys.readouterr().err
    assert ("?token=" in opened[0]) is asks
    serving.serve(session, host, 0, open_page=False)
    assert len(opened) == 1


def test_without_the_web_extra_the_way_out_is_named(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UsageError, match=r"needs uvicorn: pip install"):
        serving.serve(session)
