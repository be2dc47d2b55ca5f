"""The exported page, opened from a file with the network cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import EXACT_PLACES, opened

from vitral.build import create
from vitral.web.export import export_page
from vitral.web.session import Session

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def file(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pair = Session({"tiny-vit": session.models[0], "other-vit": create("tiny")})
    for entry in session.given:
        pair.give(session._given_bytes[entry["picture"]], entry["name"])
    return export_page(pair, tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    with opened(browser, file, EXACT_PLACES) as page:
        yield page


def test_the_page_works_alone(page: Page, session: Session, keep: Callable[[Page, str], None]) -> None:
    expect(page.locator("#offline")).to_be_visible()
    expect(page.locator("#open")).to_be_hidden()
    expect(page.locator(".thumb")).to_have_count(12)
    page.locator("#methods label", has_text="Attention").click()
    box = page.locator("#picture canvas").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] * 0.2)
    expect(page.locator("#picture .reading")).to_have_text(re.compile("^Patch in row 1, column 1 "))
    page.mouse.move(5, 5)
    for method in ("Rollout", "Relevance", "Grad-CAM", "Occlusion"):
        page.locator("#methods label", has_text=re.compile(f"^{method}$")).click()
        expect(page.locator("#picture .reading")).to_have_text(re.compile("^" + method))
    page.locator("#pictures .chip").nth(1).click()
    expect(page.locator("#pictures .chip").nth(1)).to_have_attribute("aria-pressed", "true")
    keep(page, "exported")


def test_a_model_without_a_head_is_promised_no_classes(browser: Browser, session: Session, tmp_path: Path) -> None:
    features = Session({"features": create("tiny", classes=0)})
    features.give(session._given_bytes[session.given[0]["picture"]], "one")
    with opened(browser, export_page(features, tmp_path / "page.html"), EXACT_PLACES) as page:
        expect(page.locator("#offline")).to_contain_text("all attention, the story")
        expect(page.locator("#offline-classes")).to_be_hidden()
        expect(page.get_by_text("This model has no head").first).to_be_visible()
        expect(page.get_by_role("searchbox", name="Explain another class")).to_have_count(0)


def test_surgery_says_what_was_computed(page: Page, session: Session, keep: Callable[[Page, str], None]) -> None:
    page.locator("#tab-surgery").click()
    expect(page.locator("#panel-surgery .notice")).to_contain_text("Computed when this page was made")
    page.get_by_role("switch", name="block 1, head 0", exact=True).click()
    expect(page.locator(".verdict").first).to_contain_text("1 part off")
    page.get_by_role("switch", name="block 2", exact=True).click()
    expect(page.locator(".verdict").first).to_contain_text("1 part off")
    expect(page.get_by_role("switch", name="block 1, head 0", exact=True)).to_have_attribute("aria-checked", "true")
    keep(page, "exported-surgery")


def test_figures_and_comparison_are_inside(page: Page) -> None:
    page.locator("#tab-model").click()
    expect(page.locator(".tiles")).to_have_count(2)
    page.locator("#tab-compare").click()
    expect(page.locator("#panel-compare .bar")).to_have_count(5)


def test_a_class_that_was_not_computed_is_explained(page: Page) -> None:
    page.locator("#methods label", has_text="Grad-CAM").click()
    page.locator("#predictions .bar").nth(4).click()
    expect(page.locator("#toast")).to_contain_text("most probable classes only")


def test_a_link_into_the_file(browser: Browser, file: Path) -> None:
    context = browser.new_context()
    context.add_init_script(EXACT_PLACES)
    context.set_offline(True)
    page = context.new_page()
    page.goto(file.as_uri() + "#block=1&head=2&token=20")
    page.wait_for_selector("body.ready")
    expect(page.locator("#picture .reading")).to_have_text(re.compile("^Patch in row 2, column 2 · block 1, head 2"))
    context.close()
