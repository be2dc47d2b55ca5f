"""A real server with two small models, and a real Chromium."""

from __future__ import annotations

import io
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import uvicorn
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, sync_playwright
from tests.browser.explorer import Explorer

from vitral.build import create
from vitral.web.server.routes import make_app
from vitral.web.server.serve import bind
from vitral.web.session import Session

EXACT_PLACES = "try { localStorage.getItem('vitral-words') ?? localStorage.setItem('vitral-words', 'exact') } catch {}"
"""Tests that compare with numbers want rows and columns, not "the top-left corner"."""
ARTEFACTS = Path(__file__).parents[2] / "artefacts" / "browser"


def painted(seed: int, size: tuple[int, int] = (96, 96)) -> bytes:
    rng = np.random.default_rng(seed)
    out = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (6, 6, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="session")
def session() -> Session:
    torch.manual_seed(0)
    model = create("tiny", registers=1, depth=4)
    with torch.no_grad():  # fresh weights attend almost evenly: make them choose
        for name, parameter in model.named_parameters():
            if name.endswith(("qkv.weight", "head.linear.weight")):
                parameter.mul_(8)
    session = Session({"tiny-vit": model, "small-cnn": create("cnn")})
    session.add_initial(painted(1), "first.png")
    session.add_initial(painted(2), "second.png")
    return session


@contextmanager
def served(session: Session, **options: Any) -> Iterator[tuple[str, uvicorn.Server]]:
    """A real server; its address, and the server itself for those who want to stop it."""
    listening = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(make_app(session, **options), log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/", server
    server.should_exit = True
    thread.join(timeout=10)
    listening.close()


@pytest.fixture(scope="session")
def address(session: Session) -> Iterator[str]:
    with served(session) as (address, _):
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.fail("no chromium here: install it (.ci/run does)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_init_script(EXACT_PLACES)
    yield context
    context.close()


@contextmanager
def opened(browser: Browser, file: Path, script: str = "", hash: str = "", **options: Any) -> Iterator[Explorer]:
    """A page in one file, without a network: an error or a request to anywhere fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
    context.add_init_script(script)
    context.set_offline(True)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: problems.append(request.url) if not request.url.startswith(("file:", "data:", "blob:")) else None)
    page.goto(file.as_uri() + hash)
    yield Explorer(page).ready()
    assert problems == []
    context.close()


@pytest.fixture
def visit(context: BrowserContext, address: str) -> Iterator[Callable[..., Explorer]]:
    """Open the page at a view; errors in its scripts fail the test."""
    problems: list[str] = []

    def heed(message: ConsoleMessage) -> None:
        refused = re.search(r"status of 4(15|22)", message.text)  # the browser logs every refused upload; the tests ask for some
        if message.type == "error" and not refused:
            problems.append(message.text)

    def open_page(hash: str = "#method=attention", at: str | None = None) -> Explorer:
        """At plain attention, whose numbers are easy to recompute; "" opens what users get."""
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", heed)
        page.goto(at if at and "#" in at else (at or address) + hash)
        return Explorer(page).ready()

    yield open_page
    assert problems == []


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Callable[[Explorer, str], None]:
    """Save a screenshot as an artefact, to be looked at."""

    def save(page: Explorer, name: str) -> None:
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(ARTEFACTS / f"{name}.png"), full_page=True)

    return save
