"""The exported page, opened from a file with the network cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.conftest import EXACT_PLACES, opened
from tests.browser.explorer import Explorer, words

from vitral.build import create
from vitral.web.export import export_page
from vitral.web.session import Session

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def file(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pair = Session({"tiny-vit": session.models[0], "other-vit": create("tiny")})
    for entry in session.initial:
        pair.add_initial(session.content(entry["picture"]), entry["name"])
    return export_page(pair, tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Explorer]:
    with opened(browser, file, EXACT_PLACES) as page:
        yield page


def test_the_page_works_alone(page: Explorer, session: Session, keep: Callable[[Explorer, str], None]) -> None:
    expect(page.offline).to_be_visible()
    expect(page.upload_button).to_be_hidden()
    expect(page.tiles).to_have_count(12)
    page.choose_method("Attention")
    page.point(1, 1)
    expect(page.reading).to_have_text(re.compile(words.of_patch(1, 1)))
    page.point_nowhere()
    for method in ("Rollout", "Relevance", "Grad-CAM", "Occlusion"):
        page.choose_method(method)
        expect(page.reading).to_have_text(words.begins(method))
    page.pictures.nth(1).click()
    expect(page.pictures.nth(1)).to_have_attribute("aria-pressed", "true")
    keep(page, "exported")


def test_a_model_without_a_head_is_promised_no_classes(browser: Browser, session: Session, tmp_path: Path) -> None:
    features = Session({"features": create("tiny", classes=0)})
    features.add_initial(session.content(session.initial[0]["picture"]), "one")
    with opened(browser, export_page(features, tmp_path / "page.html"), EXACT_PLACES) as page:
        expect(page.offline).to_contain_text(words.PROMISED_WITHOUT_HEAD)
        expect(page.offline_classes).to_be_hidden()
        expect(page.get_by_text(words.NO_HEAD).first).to_be_visible()
        expect(page.search_for_a_class()).to_have_count(0)


def test_surgery_says_what_was_computed(page: Explorer, session: Session, keep: Callable[[Explorer, str], None]) -> None:
    page.show("surgery")
    expect(page.notice).to_contain_text(words.COMPUTED_BEFORE)
    page.switch(1, 0).click()
    expect(page.verdict.first).to_contain_text(words.verdict(1))
    page.switch(2).click()
    expect(page.verdict.first).to_contain_text(words.verdict(1))
    expect(page.switch(1, 0)).to_have_attribute("aria-checked", "true")
    keep(page, "exported-surgery")


def test_figures_and_comparison_are_inside(page: Explorer) -> None:
    page.show("model")
    expect(page.filters).to_have_count(2)
    page.show("compare")
    expect(page.other_bars).to_have_count(5)


def test_a_class_that_was_not_computed_is_explained(page: Explorer) -> None:
    page.choose_method("Grad-CAM")
    page.bars.nth(4).click()
    expect(page.toast).to_contain_text(words.FEW_CLASSES)


def test_a_link_into_the_file(browser: Browser, file: Path) -> None:
    with opened(browser, file, EXACT_PLACES, "#block=1&head=2&token=20") as page:
        expect(page.reading).to_have_text(words.begins(f"{words.of_patch(2, 2)} · {words.head(1, 2)}"))
