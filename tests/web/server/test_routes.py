from __future__ import annotations

import asyncio
import io
import threading
from concurrent.futures import Future

import httpx2
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from vitral.build import create
from vitral.web.answers import ANSWERS
from vitral.web.pack import unpack
from vitral.web.server.limits import Limits
from vitral.web.server.routes import make_app
from vitral.web.session import Session

PICTURE = "/api/models/{model}/pictures/{picture}"


def picture(seed: int, size: tuple[int, int] = (40, 32), kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (*size, 3), dtype=np.uint8)).save(out, kind)
    return out.getvalue()


def upload(client: TestClient, content: bytes, kind: str = "image/png", name: str = "x.png") -> httpx2.Response:
    return client.post("/api/pictures", content=content, headers={"content-type": kind}, params={"name": name})


def close(app: FastAPI) -> None:
    app.state.worker.close()
    app.state.decoders.close()


def test_uploads_wait_for_their_turn_instead_of_being_refused() -> None:
    """As many at once as one address may have connections: none is turned away."""
    session = Session({"tiny": create("tiny")})
    app = make_app(session)

    async def storm() -> list[int]:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            headers = {"content-type": "image/png"}
            answers = await asyncio.gather(*(client.post("/api/pictures", content=picture(seed), headers=headers) for seed in range(60)))
            return [answer.status_code for answer in answers]

    assert asyncio.run(storm()) == [200] * 60
    close(app)


def test_a_picture_from_upload_to_map(client: TestClient) -> None:
    entry = upload(client, picture(5), name="<b>é.png").json()
    assert entry["name"] == "<b>é.png"
    assert (entry["width"], entry["height"]) == (32, 40)
    address = f"/api/models/0/pictures/{entry['picture']}"
    header, sections = unpack(client.get(f"{address}/trace").content)
    assert len(sections["logits"]) == 10
    assert header["tokens"] == 66
    heat, _ = unpack(client.get(f"{address}/map", params={"method": "gradcam", "target": 3, "off": "h0.1,p7"}).content)
    assert (heat["grid"], heat["target"]) == ([8, 8], 3)
    _, figures = unpack(client.get("/api/models/0/figures").content)
    assert figures["filters"].shape[1:] == (4, 4, 3)


def test_the_session_and_the_page(client: TestClient) -> None:
    facts = client.get("/api/session").json()
    assert [model["name"] for model in facts["models"]] == ["tiny", "cnn"]
    assert facts["pictures"][0]["name"] == "one.png"
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert client.get("/static/main.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/docs").status_code == 404
    assert client.get("/openapi.json").status_code == 200


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/static/style.css"])
def test_the_page_is_packed_and_sent_once(client: TestClient, path: str) -> None:
    packed = client.get(path, headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip" and packed.headers["vary"] == "accept-encoding"
    assert int(packed.headers["content-length"]) < 0.6 * len(packed.content)
    plain = client.get(path, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.content == packed.content
    again = client.get(path, headers={"if-none-match": f'"other", W/{packed.headers["etag"]}'})
    assert again.status_code == 304 and again.content == b""
    assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"x" * 300_000, "image/png", 413),
        (picture(0, (1100, 1000), "JPEG")[:150_000], "image/jpeg", 413),
        (picture(0), "text/plain", 415),
        (b"GIF89a nothing", "image/gif", 415),
        (b"not a picture", "image/png", 415),
        (picture(0)[:500], "image/png", 422),
        (b"", "image/png", 422),
    ],
)
def test_bad_uploads_say_why(client: TestClient, content: bytes, kind: str, status: int) -> None:
    answer = upload(client, content, kind)
    assert answer.status_code == status, answer.text
    reason = answer.json()
    assert set(reason) == {"error", "hint"}
    assert reason["error"] and reason["hint"]
    assert "Traceback" not in answer.text and "site-packages" not in answer.text


def test_an_upload_of_unknown_length_is_cut_off(client: TestClient) -> None:
    chunks = (b"x" * 50_000 for _ in range(10))
    assert client.post("/api/pictures", content=chunks, headers={"content-type": "image/png"}).status_code == 413


@pytest.mark.parametrize(
    "path",
    [
        "/static/..%2froutes.py",
        "/static/../routes.py",
        "/static/%2e%2e%2f%2e%2e%2fpyproject.toml",
        "/static//etc/passwd",
        "/static/index.html",
        "/api/models/0/pictures/..%2f..%2fetc/trace",
        "/api/models/0/pictures/%00/trace",
        "/api/models/0/pictures/ABCDEF0123456789/trace",
        "/api/models/-1/figures",
        "/api/models/99999999999999999999/figures",
        "/api/models/7/figures",
    ],
)
def test_hostile_addresses_find_nothing(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (404, 422)
    assert set(answer.json()) == {"error", "hint"}


@pytest.mark.parametrize("parts", ["x", "h0", "h0.99", "b-1", "b9", "p64", "p1e9", "b²", "h" * 60_000, "\x00", "\ufffd"])
def test_hostile_cuts_are_refused(client: TestClient, key: str, parts: str) -> None:
    answer = client.get(f"/api/models/0/pictures/{key}/trace", params={"off": parts})
    assert answer.status_code == 422, answer.text
    assert set(answer.json()) == {"error", "hint"}


def test_many_uploads_at_once_stay_bounded() -> None:
    """50 good and bad pictures in parallel: each is answered, the line never grows, and the server works afterwards."""
    limits = Limits(upload=200_000, pixels=1_000_000, uploading=6, pictures=30_000, results=10_000_000)
    session = Session({"tiny": create("tiny")}, limits)
    app = make_app(session)
    accepted: list[Future] = []
    seen: list[int] = []
    submit = app.state.decoders.submit

    def counted(content: bytes) -> Future:
        accepted.append(submit(content))
        seen.append(sum(not future.done() for future in accepted))
        return accepted[-1]

    app.state.decoders.submit = counted
    bodies = [
        picture(index) if index % 2 == 0 else (b"", b"junk", picture(index)[:300], b"x" * 300_000)[index // 2 % 4] for index in range(50)
    ]

    async def storm() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

            async def one(body: bytes) -> httpx2.Response:
                async def slowly():
                    for start in range(0, max(len(body), 1), 4096):
                        await asyncio.sleep(0.002)
                        yield body[start : start + 4096]

                return await client.post("/api/pictures", content=slowly(), headers={"content-type": "image/png"})

            answers = await asyncio.gather(*(one(body) for body in bodies))
            later = await client.post("/api/pictures", content=picture(99), headers={"content-type": "image/png"})
            return [*answers, later]

    *answers, later = asyncio.run(storm())
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) <= {200, 413, 415, 422, 429, 503}
    assert 200 in statuses and 429 in statuses
    for answer in answers:
        if answer.status_code != 200:
            assert set(answer.json()) == {"error", "hint"}
            assert "Traceback" not in answer.text
        if answer.status_code in (429, 503):
            assert answer.headers["retry-after"] == "1"
    assert 1 < max(seen) <= limits.uploading, "they wait for each other, within the bound"
    assert session._uploads.size <= limits.pictures
    assert later.status_code == 200, "the server is well"
    close(app)


def test_one_upload_more_than_allowed_is_told_to_wait() -> None:
    session = Session({"tiny": create("tiny")}, Limits(uploading=1))
    app = make_app(session)
    body, headers = picture(0), {"content-type": "image/png"}

    async def ask() -> list[int]:
        begun, go = asyncio.Event(), asyncio.Event()

        async def held():
            begun.set()
            yield body[:10]
            await go.wait()
            yield body[10:]

        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            first = asyncio.create_task(client.post("/api/pictures", content=held(), headers=headers))
            await begun.wait()
            second = await client.post("/api/pictures", content=body, headers=headers)
            go.set()
            third = await client.post("/api/pictures", content=body, headers=headers) if (await first).is_success else second
            return [first.result().status_code, second.status_code, third.status_code]

    assert asyncio.run(ask()) == [200, 429, 200]
    close(app)


def test_a_full_line_answers_503(session: Session, key: str) -> None:
    app = make_app(session, limits=Limits(waiting=1))
    begun, go = threading.Event(), threading.Event()
    app.state.worker.submit(lambda: (begun.set(), go.wait(10)))
    assert begun.wait(5)
    app.state.worker.submit(lambda: None)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        answer = client.get(f"/api/models/0/pictures/{key}/trace")
        go.set()
    assert answer.status_code == 503
    assert answer.json()["hint"]


def test_a_slow_upload_is_ended() -> None:
    session = Session({"tiny": create("tiny")}, Limits(read_seconds=0.05))
    app = make_app(session)

    async def ask() -> httpx2.Response:
        async def drip():
            for _ in range(50):
                await asyncio.sleep(0.05)
                yield b"x"

        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            return await client.post("/api/pictures", content=drip(), headers={"content-type": "image/png"})

    assert asyncio.run(ask()).status_code == 408
    close(app)


@pytest.mark.slow
def test_fuzzing_by_the_schema_finds_no_server_error(session: Session, key: str) -> None:
    """Schemathesis reads the API's own description and tries what it allows and what it forbids."""
    import schemathesis

    app = make_app(session)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"host": "127.0.0.1"})
    operations = [result.ok() for result in schema.get_all_operations()]
    assert {operation.path.removeprefix(f"{PICTURE}/") for operation in operations} >= set(ANSWERS), "an entry of its own per answer"
    assert len(operations) == len(ANSWERS) + 4
    for operation in operations:
        statuses = fuzz(operation, schemathesis.GenerationMode.POSITIVE, {"picture": key, "model": 0})
        if operation.path not in ("/api/session", "/api/work"):  # they take no input, so there is none to spoil
            statuses |= fuzz(operation, schemathesis.GenerationMode.NEGATIVE, {})
        assert not {status for status in statuses if status >= 500}, operation.path
        # Random bytes are no picture, a random word is no method, and this model has no snapshots.
        assert 200 in statuses or operation.path in ("/api/pictures", f"{PICTURE}/map", f"{PICTURE}/film"), operation.path
    close(app)


def fuzz(operation, mode, real: dict) -> set[int]:
    """The statuses of 40 requests; `real` names things that exist, so that allowed requests reach the model."""
    from hypothesis import HealthCheck, given, settings
    from schemathesis.checks import not_a_server_error

    statuses: set[int] = set()

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def attack(case) -> None:
        case.path_parameters.update({name: value for name, value in real.items() if name in case.path_parameters})
        answer = case.call(headers={"host": "127.0.0.1"})
        statuses.add(answer.status_code)
        case.validate_response(answer, checks=(not_a_server_error,))

    attack()
    return statuses
