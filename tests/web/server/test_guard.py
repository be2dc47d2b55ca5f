from __future__ import annotations

import asyncio

import pytest
from fastapi.testclient import TestClient

from vitral.web.server.guard import Guard, host_allowed, is_loopback, token_matches
from vitral.web.server.routes import make_app
from vitral.web.session import Session


def test_every_answer_carries_the_policy(client: TestClient) -> None:
    for path in ("/", "/api/session", "/nothing", "/static/main.js"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "192.168.1.7:8642", ""])
def test_other_hosts_are_turned_away(client: TestClient, host: str) -> None:
    answer = client.get("/api/session", headers={"host": host})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error", "hint"}


def test_two_hosts_are_one_too_many(client: TestClient) -> None:
    """Whoever stands in front of the server may have looked at the other one."""
    answer = client.get("/api/session", headers=[("host", "evil.example"), ("host", "127.0.0.1:8642")])
    assert answer.status_code == 400 and answer.json()["error"] == "two Host headers"


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}, {"origin": "http://127.0.0.1:1"}]
)
def test_other_pages_cannot_post(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.post("/api/pictures", content=b"x", headers={"content-type": "image/png", **headers})
    assert answer.status_code == 403
    preflight = client.options("/api/pictures", headers={"access-control-request-method": "POST", **headers})
    assert preflight.status_code == 403
    assert "access-control-allow-origin" not in preflight.headers


def test_the_own_page_can_post(client: TestClient) -> None:
    headers = {"content-type": "text/plain", "origin": "http://127.0.0.1:8642", "sec-fetch-site": "same-origin"}
    assert client.post("/api/pictures", content=b"x", headers=headers).status_code == 415


def test_a_token_is_asked_for_on_other_addresses(session: Session) -> None:
    with TestClient(
        make_app(session, host="0.0.0.0", token="secret"), base_url="http://192.168.1.7:8642", follow_redirects=False
    ) as client:
        for path in ("/", "/static/main.js", "/api/session", "/openapi.json", "/?token=wrong"):
            assert client.get(path).status_code == 401
        assert client.get("/api/session", headers={"authorization": "Bearer secret"}).status_code == 200
        assert client.get("/api/session?token=secret").status_code == 401, "only the page takes it from the address"
        welcome = client.get("/?token=secret")
        assert welcome.status_code == 303
        assert welcome.headers["location"] == "/"
        assert "httponly" in welcome.headers["set-cookie"].lower() and "samesite=strict" in welcome.headers["set-cookie"].lower()
        assert client.get("/api/session").status_code == 200, "the cookie now holds it"


def test_a_visitor_without_the_token_gets_a_page(session: Session) -> None:
    with TestClient(make_app(session, host="0.0.0.0", token="secret"), base_url="http://192.168.1.7:8642") as client:
        page = client.get("/", headers={"accept": "text/html,*/*;q=0.8"})
        assert page.status_code == 401 and page.headers["content-type"].startswith("text/html")
        assert "asks for its token" in page.text and "secret" not in page.text
        assert client.get("/api/session").json()["hint"], "programs get JSON"


def test_a_failure_inside_shows_nothing_of_it(session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("/secret/path leaked")

    monkeypatch.setattr(session, "figures", fail)
    with TestClient(make_app(session), base_url="http://localhost") as client:
        answer = client.get("/api/models/0/figures")
    assert answer.status_code == 500
    assert "secret" not in answer.text and "Traceback" not in answer.text
    assert "leaked" in caplog.text, "but the terminal knows"


def test_what_runs_when_the_server_stops_is_answered_and_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[dict] = []

    async def play() -> None:
        async def endless(*_: object) -> None:
            await asyncio.sleep(60)

        async def send(message: dict) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")], "query_string": b""}
        task = asyncio.create_task(Guard(endless, "127.0.0.1", None)(scope, endless, send))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    asyncio.run(play())
    assert sent[0]["status"] == 503 and caplog.text == ""


def test_websockets_are_closed(client: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/api/session"):
        pass


@pytest.mark.parametrize("name", ["127.0.0.1", "127.0.0.1:8642", "localhost:1", "LOCALHOST", "[::1]:8642", "[::1]"])
def test_loopback_names_pass(name: str) -> None:
    assert host_allowed(name, "127.0.0.1")


@pytest.mark.parametrize("name", [None, "", "evil.example", "127.0.0.1.evil.example:8642", "192.168.0.5:8642", "localhost.evil.example"])
def test_other_names_do_not_pass_on_loopback(name: str | None) -> None:
    assert not host_allowed(name, "127.0.0.1")


def test_on_another_address_number_addresses_and_its_name_pass() -> None:
    assert host_allowed("192.168.0.5:8642", "0.0.0.0")
    assert host_allowed("box.local:8642", "box.local")
    assert not host_allowed("evil.example", "0.0.0.0")


def test_loopback() -> None:
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("example.org")


def test_tokens() -> None:
    assert token_matches("abc", "abc")
    assert not any(token_matches(wrong, "abc") for wrong in (None, "", "abd", "abcd", "äbc"))
