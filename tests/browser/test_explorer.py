"""The explorer as a user has it: a real server, a real Chromium."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, Page, expect

from vitral import look
from vitral.web.session import Session

pytestmark = pytest.mark.browser

Visit = Callable[..., Page]
Keep = Callable[[Page, str], None]
CANVAS = "#picture canvas"


def pixels(page: Page, selector: str) -> np.ndarray:
    data = page.evaluate("selector => document.querySelector(selector).toDataURL()", selector)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data.split(",")[1]))).convert("RGB")).astype(int)


def point(page: Page, row: int, column: int, rows: int = 8, columns: int = 8, selector: str = CANVAS) -> None:
    box = page.locator(selector).bounding_box()
    assert box
    page.mouse.move(box["x"] + (column + 0.5) / columns * box["width"], box["y"] + (row + 0.5) / rows * box["height"])


def reading(page: Page) -> str:
    return page.locator("#picture .reading").inner_text()


def drop(page: Page, content: bytes, name: str = "dropped.png") -> None:
    page.evaluate(
        """([data, name]) => {
            const bytes = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], name, { type: "image/png" }));
            document.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
        }""",
        [base64.b64encode(content).decode(), name],
    )


def test_drop_a_picture_and_see_what_the_model_says(visit: Visit, session: Session, keep: Keep) -> None:
    page = visit()
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(9).integers(0, 255, (90, 120, 3), dtype=np.uint8)).save(out, "PNG")
    drop(page, out.getvalue())
    expect(page.locator("#pictures .chip[aria-pressed=true]")).to_have_text("dropped.png")
    ranking = look.predict(session.models[0], Image.open(out))[0]
    expect(page.locator("#predictions .bar .name").first).to_have_text(ranking[0][0])
    expect(page.locator("#predictions .bar")).to_have_count(5)
    assert page.locator(".thumb").count() == 12
    keep(page, "dropped")


def test_a_bad_picture_is_explained(visit: Visit) -> None:
    page = visit()
    drop(page, b"this is no picture", "bad.png")
    expect(page.locator("#toast")).to_contain_text("not a picture")


def test_hovering_shows_attention_without_asking_the_server(visit: Visit, session: Session) -> None:
    page = visit("#block=2&head=1")
    before = pixels(page, CANVAS)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    tape = look.watch(session.models[0], session.picture(0, session.given[0]["picture"]))
    for row, column in ((1, 6), (5, 2)):
        point(page, row, column)
        weights = tape.attention(2)[0, 1, 2 + row * 8 + column].numpy()
        best = int(weights[2:].argmax())
        first = "" if weights.argmax() >= 2 else r"the \w+ \w+ \([^)]+\), of the patches at "
        expect(page.locator("#picture .reading")).to_have_text(
            re.compile(rf"Patch in row {row}, column {column} · block 2, head 1 · looks most at {first}row {best // 8}, column {best % 8} ")
        )
    assert np.abs(pixels(page, CANVAS) - before).max() > 40
    assert asked == []
    page.mouse.move(5, 5)
    expect(page.locator("#picture .reading")).to_have_text(re.compile("^Class token"))


def test_registers_and_the_class_token_are_clickable(visit: Visit, session: Session) -> None:
    page = visit()
    page.get_by_role("button", name="register 0").click()
    expect(page.locator("#picture .reading")).to_have_text(re.compile("^Register 0"))
    row = look.watch(session.models[0], session.picture(0, session.given[0]["picture"])).attention(3)[0].mean(dim=0)[1]
    share = page.locator("#picture .chip").nth(0).locator("span").inner_text()
    assert float(re.findall(r"[\d.]+", share)[0]) == pytest.approx(100 * float(row[0]), abs=1.0)


def test_choose_block_head_and_method(visit: Visit, session: Session, keep: Keep) -> None:
    page = visit()
    seen = [pixels(page, CANVAS)]
    page.locator("#block").fill("1")
    page.locator("#head").select_option("2")
    assert "block 1, head 2" in reading(page)
    expect(page.locator(".thumb[aria-pressed=true]")).to_have_attribute("aria-label", re.compile("^block 1, head 2,"))
    for name, text in (("Rollout", "Rollout"), ("Relevance", "Relevance ·"), ("Grad-CAM", "Grad-CAM ·"), ("Occlusion", "Occlusion ·")):
        page.locator("#methods label", has_text=re.compile(f"^{name}$")).click()
        expect(page.locator("#picture .reading")).to_have_text(re.compile("^" + text))
        seen.append(pixels(page, CANVAS))
    assert all(np.abs(one - other).max() > 10 for index, one in enumerate(seen) for other in seen[:index])
    page.locator("#predictions .bar").nth(2).click()
    name = page.locator("#predictions .bar .name").nth(2).inner_text()
    expect(page.locator("#picture .reading")).to_have_text(re.compile(f"^Occlusion · {re.escape(name)} "))
    keep(page, "occlusion")


def test_sort_the_wall(visit: Visit) -> None:
    page = visit()
    labels = lambda: page.locator(".thumb").evaluate_all("all => all.map((each) => each.getAttribute('aria-label'))")  # noqa: E731
    by_depth = labels()
    assert [label.split(",")[0] for label in by_depth] == [f"block {block}" for block in range(4) for _ in range(3)]
    page.locator(".segments label", has_text="entropy").first.click()
    values = [float(re.findall(r"entropy ([\d.]+)", label)[0]) for label in labels()]
    assert values == sorted(values)
    assert sorted(labels()) == sorted(by_depth)
    assert "sort=entropy" in page.url


def test_enlarge_and_walk_with_the_keyboard(visit: Visit, keep: Keep) -> None:
    page = visit()
    page.locator(".thumb").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".thumb:focus")).to_have_attribute("aria-label", re.compile("^block 0, head 1,"))
    assert "block 0, head 1" in reading(page)
    page.keyboard.press("Enter")
    expect(page.locator("#enlarge")).to_be_visible()
    first = pixels(page, "#enlarge-matrix")
    assert first.shape[:2] == (66, 66)
    page.keyboard.press("ArrowRight")
    expect(page.locator("#enlarge-title")).to_have_text("block 0, head 2")
    assert np.abs(pixels(page, "#enlarge-matrix") - first).max() > 10
    keep(page, "enlarged")
    page.keyboard.press("Escape")
    expect(page.locator("#enlarge")).to_be_hidden()


def test_walk_the_patches_and_tabs_with_the_keyboard(visit: Visit) -> None:
    page = visit()
    page.locator(CANVAS).focus()
    page.keyboard.press("ArrowRight")
    assert reading(page).startswith("Patch in row 4, column 5")
    page.keyboard.press("ArrowUp")
    assert reading(page).startswith("Patch in row 3, column 5")
    page.keyboard.press("Escape")
    assert reading(page).startswith("Class token")
    page.locator("#tab-wall").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#panel-depth")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#panel-wall")).to_be_visible()


def test_switch_a_head_off(visit: Visit, session: Session, keep: Keep) -> None:
    page = visit("#view=surgery")
    page.get_by_role("switch", name="block 1, head 2", exact=True).click()
    key = session.given[0]["picture"]
    rows = session.surgery(0, key, heads=[(1, 2)])["rows"]
    expect(page.locator(".verdict").first).to_contain_text("1 part off")
    shown = page.locator(".changes .number").first.inner_text()
    before = float(shown.split(" ")[0].split("\u00a0")[0].strip("<"))
    assert any(abs(before - 100 * row[1]) < 0.51 for row in rows)
    assert page.get_by_role("switch", name="block 1, head 2", exact=True).get_attribute("aria-checked") == "false"
    page.get_by_role("switch", name="block 3", exact=True).click()
    expect(page.locator(".verdict").first).to_contain_text("2 parts off")
    box = page.locator(CANVAS).bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] / 16, box["y"] + box["height"] / 16)
    expect(page.locator(".verdict").first).to_contain_text("3 parts off")
    assert "off=b3,h1.2,p0" in page.url
    keep(page, "surgery")
    page.get_by_role("button", name="Switch everything on").click()
    expect(page.locator(".verdict").first).to_have_text("Everything is on.")


def test_the_models_own_figures(visit: Visit, keep: Keep) -> None:
    page = visit("#view=model")
    expect(page.locator(".tiles")).to_have_count(2)
    expect(page.locator("#panel-model .sheet")).to_be_visible()
    expect(page.locator(".dot")).to_have_count(12)
    page.locator(".dot").nth(4).dispatch_event("click")
    assert "block=1&head=1" in page.url
    keep(page, "model")


def test_compare_two_models_linked(visit: Visit, keep: Keep) -> None:
    page = visit("#view=compare&method=gradcam")
    other = "#panel-compare canvas.scene"
    expect(page.locator("#panel-compare .bar")).to_have_count(5)
    expect(page.locator("#panel-compare .reading")).to_have_text(re.compile("^Grad-CAM"))
    before = pixels(page, other)
    point(page, 2, 3)
    page.wait_for_timeout(100)
    changed = np.argwhere(np.abs(pixels(page, other) - before).max(axis=2) > 30)
    assert len(changed), "the other model's picture shows where the pointer is"
    top, left = changed.mean(axis=0) / before.shape[0]
    assert abs(top - 2.5 / 8) < 0.08 and abs(left - 3.5 / 8) < 0.08
    keep(page, "compare")
    page.get_by_role("button", name="Swap the two models").click()
    expect(page.locator("#models button[aria-pressed=true] b")).to_have_text("small-cnn")
    expect(page.locator("#tab-compare")).to_have_attribute("aria-selected", "true")
    page.locator("#tab-wall").click()
    expect(page.locator("#panel-wall")).to_contain_text("has no attention heads")


def test_a_link_reproduces_the_view(visit: Visit, session: Session) -> None:
    page = visit()
    page.locator("#pictures .chip").nth(1).click()
    expect(page.locator("#pictures .chip").nth(1)).to_have_attribute("aria-pressed", "true")
    page.locator("#block").fill("2")
    page.locator("#head").select_option("0")
    box = page.locator(CANVAS).bounding_box()
    assert box
    chosen = page.locator("#predictions .bar .name").nth(1).inner_text()
    page.locator("#predictions .bar").nth(1).click()
    page.mouse.click(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.3)
    page.locator("#tab-surgery").click()
    page.get_by_role("switch", name="block 0, head 1", exact=True).click()
    page.mouse.move(5, 5)
    expect(page.locator("#picture .reading")).to_have_text(re.compile("^Patch in row 2, column 5 · block 2, head 0"))
    expect(page.locator(".verdict").first).to_contain_text("1 part off")
    again = visit(at=page.url)
    expect(again.locator("#picture .reading")).to_have_text(reading(page))
    expect(again.locator(".verdict").first).to_have_text(page.locator(".verdict").first.inner_text())
    expect(again.locator("#predictions .bar[aria-pressed=true] .name")).to_have_text(chosen)
    assert np.abs(pixels(again, CANVAS) - pixels(page, CANVAS)).max() <= 2


NONSENSE = "#picture=zzz&block=999&head=-7&token=99999&view=nothing&off=h99.9,xx&model=7"


@pytest.mark.parametrize("hash", [NONSENSE, "#%%%", "#target=-5&sort=evil"])
def test_a_nonsense_link_still_shows_something(visit: Visit, hash: str) -> None:
    page = visit(hash)
    expect(page.locator(".thumb")).to_have_count(12)
    assert reading(page)


def test_a_link_to_an_unknown_picture_says_so(context: BrowserContext, address: str) -> None:
    page = context.new_page()
    page.goto(address + "#picture=0123456789abcdef")
    expect(page.locator("#toast")).to_contain_text("drop it on the page again")


def test_save_the_picture(visit: Visit) -> None:
    page = visit("#block=1&head=1")
    with page.expect_download() as waiting:
        page.locator("#save-as summary").click()
        page.locator("#save").click()
    with Image.open(waiting.value.path()) as saved:
        assert saved.format == "PNG" and saved.width >= 640
    assert "block-1-head-1" in waiting.value.suggested_filename


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844), (820, 1100)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_size_and_theme(visit: Visit, keep: Keep, width: int, height: int, scheme: str) -> None:
    page = visit()
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    for view in ("wall", "surgery", "model", "compare"):
        page.locator(f"#tab-{view}").click()
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{view} is wider than the screen"
        keep(page, f"{view}-{width}-{scheme}")
        assert page.evaluate(CONTRAST) == []
    unnamed = page.evaluate(UNNAMED)
    assert unnamed == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    page.locator("#theme").click() if scheme == "light" else None
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
