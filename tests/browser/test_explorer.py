"""The explorer as a user has it: a real server, a real Chromium."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, expect
from tests.browser.explorer import Explorer, words
from tests.web.conftest import shares

from vitral import look
from vitral.web.session import Session

pytestmark = pytest.mark.browser

Visit = Callable[..., Explorer]
Keep = Callable[[Explorer, str], None]


def test_drop_a_picture_and_see_what_the_model_says(visit: Visit, session: Session, keep: Keep) -> None:
    page = visit()
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(9).integers(0, 255, (90, 120, 3), dtype=np.uint8)).save(out, "PNG")
    page.drop(out.getvalue())
    expect(page.chosen_picture).to_have_text("dropped.png")
    ranking = look.predict(session.models[0], Image.open(out))[0]
    expect(page.names.first).to_have_text(ranking[0][0])
    expect(page.bars).to_have_count(5)
    assert page.tiles.count() == 12
    keep(page, "dropped")


def test_a_bad_picture_is_explained(visit: Visit) -> None:
    page = visit()
    page.drop(b"this is no picture", "bad.png")
    expect(page.toast).to_contain_text(words.NOT_A_PICTURE)


def test_hovering_shows_attention_without_asking_the_server(visit: Visit, session: Session) -> None:
    page = visit("#block=2&head=1")
    before = page.pixels()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    tape = look.watch(session.models[0], session.picture(0, session.initial[0]["picture"]))
    for row, column in ((1, 6), (5, 2)):
        page.point(row, column)
        weights = tape.attention(2)[0, 1, 2 + row * 8 + column].numpy()
        best = int(weights[2:].argmax())
        first = "" if weights.argmax() >= 2 else r"the \w+ \w+ \([^)]+\), of the patches at "
        expect(page.reading).to_have_text(
            re.compile(rf"{words.of_patch(row, column)} · {words.head(2, 1)} · {words.LOOKS_AT} {first}{words.place(best // 8, best % 8)} ")
        )
    assert np.abs(page.pixels() - before).max() > 40
    assert asked == []
    page.point_nowhere()
    expect(page.reading).to_have_text(words.begins(words.OF_CLASS_TOKEN))


def test_registers_and_the_class_token_are_clickable(visit: Visit, session: Session) -> None:
    page = visit()
    page.button("register 0").click()
    expect(page.reading).to_have_text(words.begins("Register 0"))
    row = look.watch(session.models[0], session.picture(0, session.initial[0]["picture"])).attention(3)[0].mean(dim=0)[1]
    share = page.tokens.nth(0).locator("span").inner_text()
    assert float(re.findall(r"[\d.]+", share)[0]) == pytest.approx(100 * float(row[0]), abs=1.0)


def test_choose_block_head_and_method(visit: Visit, session: Session, keep: Keep) -> None:
    page = visit()
    seen = [page.pixels()]
    page.choose_head(1, 2)
    assert words.head(1, 2) in page.text()
    expect(page.chosen_tile).to_have_attribute("aria-label", words.begins(f"{words.head(1, 2)},"))
    for name, text in (("Rollout", "Rollout"), ("Relevance", "Relevance ·"), ("Grad-CAM", "Grad-CAM ·"), ("Occlusion", "Occlusion ·")):
        page.choose_method(name)
        expect(page.reading).to_have_text(re.compile("^" + text))
        seen.append(page.pixels())
    assert all(np.abs(one - other).max() > 10 for index, one in enumerate(seen) for other in seen[:index])
    page.bars.nth(2).click()
    name = page.names.nth(2).inner_text()
    expect(page.reading).to_have_text(re.compile(f"^Occlusion · {re.escape(name)} "))
    keep(page, "occlusion")


def test_sort_the_wall(visit: Visit) -> None:
    page = visit()
    labels = lambda: page.tiles.evaluate_all("all => all.map((each) => each.getAttribute('aria-label'))")  # noqa: E731
    by_depth = labels()
    assert [label.split(",")[0] for label in by_depth] == [f"block {block}" for block in range(4) for _ in range(3)]
    page.sort_by("entropy")
    values = [float(re.findall(r"entropy ([\d.]+)", label)[0]) for label in labels()]
    assert values == sorted(values)
    assert sorted(labels()) == sorted(by_depth)
    assert "sort=entropy" in page.url


def test_enlarge_and_walk_with_the_keyboard(visit: Visit, keep: Keep) -> None:
    page = visit()
    page.tiles.first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.focused_tile).to_have_attribute("aria-label", words.begins(f"{words.head(0, 1)},"))
    assert words.head(0, 1) in page.text()
    page.keyboard.press("Enter")
    expect(page.enlarged).to_be_visible()
    first = page.pixels(page.enlarged_matrix)
    assert first.shape[:2] == (66, 66)
    page.keyboard.press("ArrowRight")
    expect(page.enlarged_title).to_have_text(words.head(0, 2))
    assert np.abs(page.pixels(page.enlarged_matrix) - first).max() > 10
    keep(page, "enlarged")
    page.keyboard.press("Escape")
    expect(page.enlarged).to_be_hidden()


def test_walk_the_patches_and_tabs_with_the_keyboard(visit: Visit) -> None:
    page = visit()
    page.canvas.focus()
    page.keyboard.press("ArrowRight")
    assert page.text().startswith(words.of_patch(4, 5))
    page.keyboard.press("ArrowUp")
    assert page.text().startswith(words.of_patch(3, 5))
    page.keyboard.press("Escape")
    assert page.text().startswith(words.OF_CLASS_TOKEN)
    page.tab("wall").focus()
    page.keyboard.press("ArrowRight")
    expect(page.panel("depth")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page.panel("wall")).to_be_visible()


def test_switch_a_head_off(visit: Visit, session: Session, keep: Keep) -> None:
    page = visit("#view=surgery")
    page.switch(1, 2).click()
    key = session.initial[0]["picture"]
    whole = 100 * shares(session, key)
    expect(page.verdict.first).to_contain_text(words.verdict(1))
    shown = page.changes.first.inner_text()
    before = float(shown.split(" ")[0].split("\u00a0")[0].strip("<"))
    assert any(abs(before - share) < 0.51 for share in whole)
    assert page.switch(1, 2).get_attribute("aria-checked") == "false"
    page.switch(3).click()
    expect(page.verdict.first).to_contain_text(words.verdict(2))
    page.click_patch(0, 0)
    expect(page.verdict.first).to_contain_text(words.verdict(3))
    assert "off=b3,h1.2,p0" in page.url
    keep(page, "surgery")
    page.button(words.ALL_ON).click()
    expect(page.verdict.first).to_have_text(words.EVERYTHING_ON)


def test_the_models_own_figures(visit: Visit, keep: Keep) -> None:
    page = visit("#view=model")
    expect(page.filters).to_have_count(2)
    expect(page.sheet).to_be_visible()
    expect(page.dots).to_have_count(12)
    page.dots.nth(4).dispatch_event("click")
    assert "block=1&head=1" in page.url
    keep(page, "model")


def test_compare_two_models_linked(visit: Visit, keep: Keep) -> None:
    page = visit("#view=compare&method=gradcam")
    expect(page.other_bars).to_have_count(5)
    expect(page.other_reading).to_have_text(words.begins("Grad-CAM"))
    before = page.pixels(page.other_canvas)
    page.point(2, 3)
    page.wait_for_timeout(100)
    changed = np.argwhere(np.abs(page.pixels(page.other_canvas) - before).max(axis=2) > 30)
    assert len(changed), "the other model's picture shows where the pointer is"
    top, left = changed.mean(axis=0) / before.shape[0]
    assert abs(top - 2.5 / 8) < 0.08 and abs(left - 3.5 / 8) < 0.08
    keep(page, "compare")
    page.button(words.SWAP).click()
    expect(page.chosen_model).to_have_text("small-cnn")
    expect(page.tab("compare")).to_have_attribute("aria-selected", "true")
    page.show("wall")
    expect(page.panel("wall")).to_contain_text(words.NO_HEADS)


def test_a_link_reproduces_the_view(visit: Visit, session: Session) -> None:
    page = visit()
    page.pictures.nth(1).click()
    expect(page.pictures.nth(1)).to_have_attribute("aria-pressed", "true")
    page.choose_head(2, 0)
    chosen = page.names.nth(1).inner_text()
    page.bars.nth(1).click()
    page.click_patch(2, 5)
    page.show("surgery")
    page.switch(0, 1).click()
    page.point_nowhere()
    expect(page.reading).to_have_text(words.begins(f"{words.of_patch(2, 5)} · {words.head(2, 0)}"))
    expect(page.verdict.first).to_contain_text(words.verdict(1))
    again = visit(at=page.url)
    expect(again.reading).to_have_text(page.text())
    expect(again.verdict.first).to_have_text(page.verdict.first.inner_text())
    expect(again.chosen_name).to_have_text(chosen)
    assert np.abs(again.pixels() - page.pixels()).max() <= 2


NONSENSE = "#picture=zzz&block=999&head=-7&token=99999&view=nothing&off=h99.9,xx&model=7"


@pytest.mark.parametrize("hash", [NONSENSE, "#%%%", "#target=-5&sort=evil"])
def test_a_nonsense_link_still_shows_something(visit: Visit, hash: str) -> None:
    page = visit(hash)
    expect(page.tiles).to_have_count(12)
    assert page.text()


def test_a_link_to_an_unknown_picture_says_so(context: BrowserContext, address: str) -> None:
    page = Explorer(context.new_page())
    page.goto(address + "#picture=0123456789abcdef")
    expect(page.toast).to_contain_text(words.DROP_AGAIN)


def test_save_the_picture(visit: Visit) -> None:
    page = visit("#block=1&head=1")
    download = page.saved(page.save_image)
    with Image.open(download.path()) as saved:
        assert saved.format == "PNG" and saved.width >= 640
    assert "block-1-head-1" in download.suggested_filename


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844), (820, 1100)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_size_and_theme(visit: Visit, keep: Keep, width: int, height: int, scheme: str) -> None:
    page = visit()
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    for view in ("wall", "surgery", "model", "compare"):
        page.show(view)
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{view} is wider than the screen"
        keep(page, f"{view}-{width}-{scheme}")
        assert page.evaluate(CONTRAST) == []
    unnamed = page.evaluate(UNNAMED)
    assert unnamed == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.theme.click()
    page.theme.click() if scheme == "light" else None
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background, "the switch overrules the system"


UNNAMED = """() => [...document.querySelectorAll('button, input, select, canvas[tabindex], [role=img], [role=tabpanel], [role=grid]')]
    .filter((node) => !node.closest('[hidden]') && node.type !== 'file')
    .filter((node) => !node.getAttribute('aria-label') && !node.getAttribute('aria-labelledby'))
    .filter((node) => !node.textContent.trim() && !node.labels?.length)
    .map((node) => node.outerHTML.slice(0, 100))"""

CONTRAST = """() => {
    const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const colour = numbers(getComputedStyle(at).backgroundColor);
            if (colour.length < 4 || colour[3] > 0.9) return colour;
        }
        return [255, 255, 255];
    };
    const wrong = [];
    for (const node of document.querySelectorAll('h1, h2, h3, p, button, label, .name, .number, .quiet, li')) {
        const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
        if (!own || !node.checkVisibility() || node.closest('.wait') || node.querySelector(':disabled')) continue;
        const [a, b] = [light(numbers(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) wrong.push(`${node.textContent.slice(0, 40)} ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
    }
    return wrong;
}"""
