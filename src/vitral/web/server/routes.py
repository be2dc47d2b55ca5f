"""The server's addresses. Each one checks its input, asks the model's thread, and answers; nothing here touches the file system."""

from __future__ import annotations

import asyncio
import gzip
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from vitral.base.errors import VitralError
from vitral.base.files import sha256_bytes
from vitral.base.version import __version__
from vitral.web.answers import ANSWERS, Answer, Question, parse_off
from vitral.web.assets import assets
from vitral.web.server.decoder import Decoders
from vitral.web.server.guard import Guard, answer
from vitral.web.server.jobs import Worker
from vitral.web.server.limits import Limits, Refusal, check_content_type, check_image, check_length
from vitral.web.server.uploads import Uploads
from vitral.web.session import Session

_ModelNumber = Annotated[int, Path(ge=0, le=9, description="the model's number in /api/session")]
_PictureKey = Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="the picture's name, from its upload")]
_OPTIONS: dict[str, Any] = {
    "method": Annotated[str, Query(max_length=40, description="rollout, relevance, gradcam or occlusion")],
    "target": Annotated[int | None, Query(ge=0, le=2**20, description="the class to explain; none: the predicted one")],
    "off": Annotated[str, Query(max_length=50_000, description="what is switched off: h3.1,b5,p17")],
}
_DEFAULTS = {"target": None, "off": ""}


class _Failure(BaseModel):
    """Every refusal looks like this."""

    error: str
    hint: str


class _Uploaded(BaseModel):
    picture: str
    name: str
    width: int
    height: int
    thumb: str


_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": _Failure, "description": text}
    for status, text in {
        400: "malformed request or unknown host",
        401: "token missing",
        403: "another page's request",
        404: "no such picture or model",
        408: "the upload took too long",
        413: "too large",
        415: "not a picture",
        422: "cannot be used",
        429: "too many uploads at once",
        503: "the line before the model is full",
    }.items()
}

_PACKED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}},
    **{status: _REFUSALS[status] for status in (400, 401, 404, 422, 503)},
}


def make_app(session: Session, *, host: str = "127.0.0.1", token: str | None = None, limits: Limits | None = None) -> FastAPI:
    """The explorer's application around a session of models."""
    limits = limits or session.limits
    worker, uploads, decoders = Worker(limits.waiting), Uploads(limits), Decoders(limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        worker.close()
        decoders.close()

    app = FastAPI(
        title="Vitral explorer", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url="/openapi.json"
    )
    app.state.worker, app.state.decoders = worker, decoders
    app.add_middleware(Guard, host=host, token=token)
    app.add_exception_handler(VitralError, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)

    async def on_model(request: Request, work: Callable[[], Any], long: bool = False) -> Any:
        """The answer of the model's thread; nobody works for those who have left."""
        job, left = asyncio.wrap_future(worker.submit(work, long)), asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait((job, left), return_when=asyncio.FIRST_COMPLETED)
            if not job.done():
                raise Refusal(499, "nobody waits for this any more")
            return job.result()
        finally:
            job.cancel()
            left.cancel()

    @app.get("/api/session", responses=_some(400, 401))
    async def describe_session() -> dict[str, Any]:
        """The models, the pictures at hand, the methods and the limits."""
        return session.description()

    @app.post(
        "/api/pictures",
        response_model=_Uploaded,
        responses=_some(400, 401, 403, 408, 413, 415, 422, 429, 503),
        openapi_extra={
            "requestBody": {"required": True, "content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}},
        },
    )
    async def upload(
        request: Request, name: Annotated[str, Query(max_length=200, description="what to call the picture")] = "picture"
    ) -> dict[str, Any]:
        """A picture as raw bytes; it is kept in memory only."""
        check_content_type(request.headers.get("content-type"))
        check_length(request.headers.get("content-length"), limits.upload)
        async with uploads.receive(request) as content:
            check_image(content, limits)
            image = None if session.holds(content) else await asyncio.wrap_future(decoders.submit(content))
            return session.add_picture(content, name, image)

    def add_route(what: str, entry: Answer) -> None:
        async def route(request: Request, model: int, picture: str, **options: Any) -> Response:
            if "off" in options:
                options["off"] = parse_off(options["off"])
            slow = entry.slow(Question(what, model, picture, **options))
            return _bytes(await on_model(request, lambda: session.answer(what, model, picture, **options), slow))

        kind = inspect.Parameter.KEYWORD_ONLY
        named = {"request": Request, "model": _ModelNumber, "picture": _PictureKey} | {name: _OPTIONS[name] for name in entry.options}
        parameters = [
            inspect.Parameter(name, kind, annotation=annotation, default=_DEFAULTS.get(name, inspect.Parameter.empty))
            for name, annotation in named.items()
        ]
        route.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what FastAPI reads: this entry's options
        path = f"/api/models/{{model}}/pictures/{{picture}}/{what}"
        description = inspect.getdoc(entry.make)
        app.get(path, response_class=Response, responses=_PACKED, operation_id=what, description=description)(route)

    for what, entry in ANSWERS.items():
        add_route(what, entry)

    @app.get("/api/models/{model}/figures", response_class=Response, responses=_PACKED)
    async def figures(request: Request, model: _ModelNumber) -> Response:
        """The model's own figures, packed: filters and position similarity."""
        return _bytes(await on_model(request, lambda: session.figures(model)))

    @app.get("/api/work", responses=_some(400, 401))
    async def work() -> dict[str, Any]:
        """How far the long job is that runs now, if one does."""
        progress = worker.long.progress if worker.long else None
        if progress is None:
            return {"what": None, "done": 0, "total": None, "seconds": None}
        left = progress.seconds / max(progress.done, 1) * ((progress.total or 0) - progress.done)
        return {"what": progress.description, "done": progress.done, "total": progress.total, "seconds": round(left, 1)}

    # The page itself: read once at start, found by name in a dict.
    files = {name: _Asset(*entry) for name, entry in assets().items()}

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return files["index.html"].answer(request)

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(request: Request, name: str) -> Response:
        if name not in files or name == "index.html":
            raise Refusal(404, "no such file", "open /")
        return files[name].answer(request)

    return app


class _Asset:
    """A file of the page, ready to be sent: packed, and not at all to a browser that has it."""

    def __init__(self, content: bytes, kind: str) -> None:
        self.content, self.packed = content, gzip.compress(content, mtime=0)
        self.headers = {
            "content-type": kind,
            "cache-control": "no-cache",
            "vary": "accept-encoding",
            "etag": f'"{sha256_bytes(content)[:32]}"',
        }

    def answer(self, request: Request) -> Response:
        if self.headers["etag"] in request.headers.get("if-none-match", "").replace("W/", "").split(", "):
            return Response(None, 304, self.headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.packed, headers=self.headers | {"content-encoding": "gzip"})
        return Response(self.content, headers=self.headers)


def _some(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: _REFUSALS[status] for status in statuses}


def _bytes(content: bytes) -> Response:
    return Response(content, media_type="application/octet-stream")


async def _gone(request: Request) -> None:
    """Ends when whoever asked has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, VitralError)
    status = error.status if isinstance(error, Refusal) else 422
    return answer(status, error.message, error.hint, {"retry-after": "1"} if status in (429, 503) else None)


async def _http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    hint = {404: "open /", 405: "use another method"}.get(error.status_code, "")
    return answer(error.status_code, str(error.detail), hint, error.headers)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first.get("loc", ()))
    return answer(422, f"{where}: {first.get('msg', 'not valid')}", "see /openapi.json")
