"""The documentation as a folder of pages, opened without a server and without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
OUTSIDE = """() => {
    const width = document.documentElement.clientWidth;
    const scrolls = (it) => it && (/auto|scroll|hidden/.test(getComputedStyle(it).overflowX) || scrolls(it.parentElement));
    const wide = [...document.querySelectorAll(".md-content *")].filter((element) => {
        const box = element.getBoundingClientRect();
        return box.width > 0 && box.right > width + 1 && !scrolls(element.parentElement);
    });
    const page = document.documentElement.scrollWidth > width ? ["the page itself"] : [];
    return [...page, ...wide.map((element) => `${element.tagName} ${element.textContent.trim().slice(0, 60)}`)];
}"""
"""What reaches beyond the page's right edge and cannot be scrolled to on its own."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> list[str]:
    found = sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if path.name != "404.html")  # which a server shows
    assert len(found) > 25
    return found


@pytest.fixture
def visit_page(browser: Browser, site: Path) -> Iterator[Callable[..., Page]]:
    """Open a page of the site from its file; an error, or a request to anywhere else, fails the test."""
    problems: list[str] = []
    context = browser.new_context()
    context.set_offline(True)
    context.on("request", lambda request: problems.append(request.url) if not request.url.startswith(site.as_uri()) else None)
    context.on("weberror", lambda error: problems.append(str(error.error)))
    context.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page = context.new_page()

    def visit(name: str, width: int = 1280) -> Page:
        page.set_viewport_size({"width": width, "height": 800})
        page.goto((site / name).as_uri())
        return page

    yield visit
    assert problems == []
    context.close()


@pytest.mark.parametrize("width", [1280, 400])
def test_a_word_is_found_and_leads_to_its_page(visit_page: Callable[..., Page], width: int) -> None:
    page = visit_page("index.html", width)
    if width < 960:
        page.locator("label.md-header__button[for=__search]").click()
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").press_sequentially("SmoothQuant")
    found = page.locator(".md-search-result__link[href*='how-to/small.html']").first
    expect(found).to_be_visible(timeout=20_000)
    found.click()
    expect(page.locator("h1").first).to_contain_text("A model of 6 MB")
    expect(page.locator("mark", has_text="SmoothQuant").first).to_be_visible()


@pytest.mark.parametrize("width", [1280, 400])
def test_no_page_is_wider_than_the_window(visit_page: Callable[..., Page], pages: list[str], width: int) -> None:
    assert {name: found for name in pages if (found := visit_page(name, width).evaluate(OUTSIDE))} == {}


def test_every_picture_of_every_page_is_there(visit_page: Callable[..., Page], pages: list[str]) -> None:
    broken = "() => [...document.images].filter((image) => image.naturalWidth === 0).map((image) => image.src)"
    assert {name: found for name in pages if (found := visit_page(name).evaluate(broken))} == {}
