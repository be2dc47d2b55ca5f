"""What the page says is so: every sentence against the model itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page, expect
from tests.browser.conftest import painted, served
from tests.browser.test_explorer import CANVAS, pixels, reading

from vitral import look
from vitral.web.session import Session
from vitral.web.single_file import export_page

pytestmark = pytest.mark.browser

Visit = Callable[..., Page]


def percent(text: str) -> float:
    return float(re.findall(r"[\d.]+", text)[0])


def test_the_sentence_names_the_token_that_gets_most(visit: Visit, session: Session) -> None:
    """Also where it is no patch: the class token got 100 % and the sentence said row 0, column 0."""
    tape = look.watch(session.models[0], session.picture(0, session.given[0]["picture"]))
    weights = [tape.attention(block)[0].numpy() for block in range(4)]  # (heads, T, T)
    asking = [(block, head, token) for block in range(4) for head in range(3) for token in range(0, 66, 5)]
    prefixed = [place for place in asking if weights[place[0]][place[1:]].argmax() < 2]
    patched = [place for place in asking if weights[place[0]][place[1:]].argmax() >= 2]
    assert prefixed and patched
    page = visit()
    for block, head, token in [*prefixed[:4], *patched[:4]]:
        row = weights[block][head, token]
        page.evaluate("hash => (location.hash = hash)", f"#block={block}&head={head}&token={token}")
        expect(page.locator("#picture .reading")).to_contain_text(f"block {block}, head {head}")
        best, patch = int(row.argmax()), int(row[2:].argmax())
        words = ["the class token", "the register 0"][best] if best < 2 else f"row {patch // 8}, column {patch % 8}"
        said = reading(page).split("looks most at ")[1]
        assert said.startswith(words), (block, head, token)
        assert percent(said.split("(")[1]) == pytest.approx(100 * row.max(), abs=0.51)
        if best < 2:
            assert f"of the patches at row {patch // 8}, column {patch % 8}" in said


def test_the_live_and_the_exported_page_say_the_same(visit: Visit, session: Session, tmp_path: Path) -> None:
    file = export_page(session, tmp_path / "page.html").as_uri()
    live, exported = visit(), visit(at=file)
    for hash in (f"#block={block}&head={head}&token={token}" for block in (0, 3) for head in (-1, 1) for token in (-1, 0, 9, 30, 65)):
        for page in (live, exported):
            page.evaluate("hash => (location.hash = hash)", hash)
            page.wait_for_function("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        assert reading(live) == reading(exported), hash


def test_choosing_a_class_explains_it(visit: Visit) -> None:
    """Under Attention, which knows no class, nothing happened."""
    page = visit("#method=attention")
    before = pixels(page, CANVAS)
    name = page.locator("#predictions .bar .name").nth(2).inner_text()
    page.locator("#predictions .bar").nth(2).click()
    expect(page.locator("#picture .reading")).to_have_text(re.compile(f"^Relevance · {re.escape(name)}"))
    expect(page.locator("#toast")).to_contain_text("Attention knows no class")
    assert np.abs(pixels(page, CANVAS) - before).max() > 10


def test_no_path_of_the_machine_is_on_the_page(context: BrowserContext, session: Session, tmp_path: Path) -> None:
    paths = {"/home/ada/private/runs/flowers": session.models[0], "secret/vit_tiny.safetensors": session.models[1]}
    own = Session(paths)
    own.give(painted(1), "first.png")
    file = export_page(own, tmp_path / "page.html")
    assert not re.search("/home/ada|private|secret", file.read_text())
    with served(own) as (address, _):
        page = context.new_page()
        page.goto(address + "#view=compare")
        page.wait_for_selector("body.ready")
        expect(page.locator("#panel-compare .bar")).to_have_count(5)
        text = page.locator("body").inner_text()
        assert "flowers" in text and "vit_tiny" in text
        assert not re.search("/home/ada|private|secret", text + page.content())
