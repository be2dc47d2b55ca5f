"""What the page says is so: every sentence against the model itself."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.browser.conftest import painted, served
from tests.browser.test_explorer import CANVAS, pixels, reading

from vitral import look
from vitral.base.progress import track
from vitral.build import create
from vitral.web.export import export_page
from vitral.web.session import Session
from vitral.web.surgery import Cut

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
    """Under Attention, which is the same for every class, nothing happened."""
    page = visit("#method=attention")
    before = pixels(page, CANVAS)
    name = page.locator("#predictions .bar .name").nth(2).inner_text()
    page.locator("#predictions .bar").nth(2).click()
    expect(page.locator("#picture .reading")).to_have_text(re.compile(f"^Gradient rollout · {re.escape(name)}"))
    expect(page.locator("#toast")).to_contain_text("Attention is the same for every class")
    assert np.abs(pixels(page, CANVAS) - before).max() > 10


def test_the_audits_verdict_stands_beside_the_map(context: BrowserContext, own: Session) -> None:
    own.verdicts[0] = {"rollout": "do not use: it finds nothing (0.45; 0.5: chance)", "relevance": "use: it finds what counts"}
    with served(own) as (address, _):
        page = opened(context, address)
        text = page.locator("#method-text")
        expect(page.locator("#picture .reading")).to_have_text(re.compile("^Relevance · class "))  # the best by the audit
        page.locator("#methods label", has_text="Attention").click()
        expect(text).not_to_contain_text("audit")  # attention was not judged
        page.locator("#methods label", has_text=re.compile("^Rollout$")).click()
        expect(text.locator("strong")).to_have_text("The audit of this model: do not use")
        expect(text).to_contain_text("do not use: it finds nothing (0.45; 0.5: chance).")
        page.locator("#methods label", has_text="Relevance").click()
        expect(text.locator("strong")).to_have_text("The audit of this model: use")


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


@pytest.fixture
def own(session: Session) -> Session:
    """The same models under a server of the test's own, that may be stopped."""
    own = Session(dict(zip(session.names, session.models, strict=True)))
    for seed in (1, 2):
        own.give(painted(seed), f"{seed}.png")
    return own


def opened(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("body.ready", timeout=30_000)
    return page


def test_a_failed_request_leaves_nothing_of_another_picture(context: BrowserContext, own: Session) -> None:
    with served(own) as (address, _):
        page = opened(context, address)
        second = own.given[1]["picture"]
        page.route(f"**/{second}/trace", lambda route: route.fulfill(status=503, json={"error": "the line is full", "hint": "try again"}))
        page.locator("#pictures .chip").nth(1).click()
        expect(page.locator("#failed")).to_contain_text("“2.png” could not be shown")
        expect(page.locator("#failed")).to_contain_text("the line is full")
        expect(page.locator("#work")).to_be_hidden()
        page.unroute(f"**/{second}/trace")
        page.locator("#retry").click()
        expect(page.locator("#work")).to_be_visible()
        expect(page.locator("#failed")).to_be_hidden()


def test_a_stopped_server_leaves_a_lasting_sign(context: BrowserContext, own: Session) -> None:
    with served(own) as (address, _):
        page = opened(context, address)
        expect(page.locator("#lost")).to_be_hidden()
        page.route("**/api/**", lambda route: route.abort("connectionrefused"))
        page.locator("#pictures .chip").nth(1).click()
        expect(page.locator("#lost")).to_be_visible()
        page.wait_for_timeout(8000)  # longer than a passing message stays
        expect(page.locator("#lost")).to_be_visible()
        page.unroute("**/api/**")
        expect(page.locator("#lost")).to_be_hidden(timeout=5000)
        expect(page.locator("#work")).to_be_visible()
        expect(page.locator("#picture .reading")).to_have_text(re.compile("^Gradient rollout"))


def slowly(session: Session, steps: int = 60) -> list[int]:
    """Occlusion takes `steps` tenths of a second; the list grows with every step."""
    done: list[int] = []
    quick = session.map

    def slow(model: int, key: str, method: str, *more: Any) -> dict:
        for step in track(range(steps if method == "occlusion" else 0), "Covering"):
            done.append(step)
            time.sleep(0.1)
        return quick(model, key, method, *more)

    session.map = slow  # type: ignore[method-assign]
    return done


def test_occlusion_shows_its_progress_and_can_be_stopped(context: BrowserContext, own: Session) -> None:
    done = slowly(own)
    with served(own) as (address, _):
        page = opened(context, address)
        page.locator("#methods label", has_text="Occlusion").click()
        expect(page.locator("#picture .wait")).to_contain_text(re.compile(r"computing … \d+\s%, about \d+\ss left"))
        page.get_by_role("button", name="Stop").first.click()
        expect(page.locator("#picture .wait")).to_be_hidden()
        expect(page.locator("#picture .reading")).to_have_text(re.compile("^Class token"))
        time.sleep(0.5)
        reached = len(done)
        time.sleep(0.5)
        assert len(done) == reached < 60, "the server has stopped too"


def test_a_new_picture_does_not_wait_behind_occlusion(context: BrowserContext, own: Session) -> None:
    done = slowly(own)
    with served(own) as (address, _):
        first, second = opened(context, address), opened(context, address)
        first.locator("#methods label", has_text="Occlusion").click()
        expect(first.locator("#picture .wait")).to_contain_text("left")
        began = time.monotonic()
        second.locator("#file").set_input_files({"name": "new.png", "mimeType": "image/png", "buffer": painted(7)})
        expect(second.locator("#pictures .chip[aria-pressed=true]")).to_have_text("new.png")
        expect(second.locator("body.loading")).to_have_count(0)
        assert time.monotonic() - began < 4 and len(done) < 60
        assert not second.locator("#toast").is_visible()
        expect(first.locator("#picture .reading")).to_have_text(re.compile("^Occlusion"), timeout=15_000)


def test_ctrl_c_does_not_wait_for_occlusion(context: BrowserContext, own: Session) -> None:
    done = slowly(own, 300)
    with served(own) as (address, server):
        page = opened(context, address)
        page.locator("#methods label", has_text="Occlusion").click()
        expect(page.locator("#picture .wait")).to_contain_text("left")
        server.should_exit = True
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert len(done) < 100


def test_a_reload_keeps_the_uploads_and_back_goes_back(context: BrowserContext, own: Session) -> None:
    with served(own) as (address, _):
        page = opened(context, address)
        page.locator("#file").set_input_files({"name": "mine.png", "mimeType": "image/png", "buffer": painted(8)})
        chosen = page.locator("#pictures .chip[aria-pressed=true]")
        expect(chosen).to_have_text("mine.png")
        page.reload()
        page.wait_for_selector("body.ready")
        expect(chosen).to_have_text("mine.png")
        expect(page.locator("#pictures .chip")).to_have_count(3)
        page.locator("#pictures .chip").nth(1).click()
        expect(chosen).to_have_text("2.png")
        page.locator("#tab-surgery").click()
        page.go_back()
        expect(page.locator("#panel-wall")).to_be_visible()
        expect(chosen).to_have_text("2.png")
        page.go_back()
        expect(chosen).to_have_text("mine.png")
        assert page.url.startswith(address)


def test_copy_link_says_for_whom_it_works(context: BrowserContext, own: Session, tmp_path: Path) -> None:
    file = export_page(own, tmp_path / "page.html").as_uri()
    with served(own) as (address, _):
        for at, words in ((address, "on this computer only"), (file, "send them the file")):
            context.grant_permissions(["clipboard-read", "clipboard-write"])
            page = opened(context, at)
            page.locator("#link").click()
            expect(page.locator("#toast")).to_contain_text(words)


def test_a_visitor_without_the_token_sees_a_page(context: BrowserContext, own: Session) -> None:
    with served(own, host="0.0.0.0", token="secret") as (address, _):
        page = context.new_page()
        answer = page.goto(address)
        assert answer and answer.status == 401
        expect(page.locator("h1")).to_have_text("This explorer asks for its token")
        page.goto(address + "?token=secret")
        page.wait_for_selector("body.ready")


def brightness(page: Page, selector: str) -> list[float]:
    """The brightest pixel of each canvas."""
    script = """(selector) => [...document.querySelectorAll(selector)].map((canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let most = 0;
        for (let at = 0; at < data.length; at += 4) most = Math.max(most, data[at] + data[at + 1] + data[at + 2]);
        return most / 765;
    })"""
    return page.evaluate(script, selector)


def test_a_model_that_attends_evenly_does_not_glow(context: BrowserContext, session: Session) -> None:
    """Each map was stretched to its own range: fresh weights looked like trained ones."""
    torch.manual_seed(1)
    pair = Session({"chooses": session.models[0], "fresh": create("tiny", depth=4, registers=1)})
    pair.give(painted(1), "1.png")
    with served(pair) as (address, _):
        page = opened(context, address + "#method=attention")
        chooses = brightness(page, ".thumb canvas")
        assert float(np.median(chooses)) > 0.6
        expect(page.locator("#picture .scale")).to_contain_text("Colours span at least 3 × an equal share")
        expect(page.locator("#panel-wall")).to_contain_text("a flat map stays dark")
        page.locator("#models button").nth(1).click()
        expect(page.locator("#models button").nth(1)).to_have_attribute("aria-pressed", "true")
        page.wait_for_function("() => !document.body.classList.contains('loading')")
        fresh = brightness(page, ".thumb canvas")
        assert max(fresh) < 0.45 < float(np.median(chooses)), (fresh, chooses)
        high = page.locator("#picture .legend span").nth(1).inner_text()
        assert percent(high) > 100 * 3 / 66, "the legend says how far the colours reach"
        page.locator("#methods label", has_text="Occlusion").click()
        expect(page.locator("#picture .reading")).to_have_text(re.compile("^Occlusion"))
        assert percent(page.locator("#picture .legend span").nth(1).inner_text()) >= 0.02
        page.locator("#methods label", has_text="Grad-CAM").click()
        expect(page.locator("#picture .scale")).to_contain_text("range of this map")


def shares(page: Page) -> dict[str, tuple[float, float]]:
    """Class → probability as the page has it now, and that of the whole model beside it, in percent."""
    found = {}
    for bar in page.locator("#predictions .bar").all():
        now, whole = bar.locator(".number").inner_text().split("whole")
        found[bar.locator(".name").inner_text()] = (percent(now), percent(whole))
    return found


def test_with_parts_off_the_whole_page_shows_the_cut_model(visit: Visit, session: Session) -> None:
    """Prediction, picture and wall showed the uncut model while surgery showed another."""
    key, cut = session.given[0]["picture"], Cut(((3, 1),), (1,), (10,))
    page = visit("#view=surgery")
    expect(page.locator("#cut")).to_be_hidden()
    page.get_by_role("switch", name="block 3, head 1", exact=True).click()
    page.get_by_role("switch", name="block 1", exact=True).click()
    box = page.locator(CANVAS).bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] * 2.5 / 8, box["y"] + box["height"] * 1.5 / 8)
    expect(page.locator("#cut")).to_contain_text("3 parts are off")
    page.mouse.move(5, 5)
    truth = {row[0]: row for row in session.surgery(0, key, cut.heads, cut.blocks, cut.patches)["rows"]}
    shown = shares(page)
    assert len(shown) >= 5
    for name, (now, whole) in shown.items():
        _, before, after = truth[int(name.removeprefix("class "))]
        assert now == pytest.approx(100 * after, abs=0.51) and whole == pytest.approx(100 * before, abs=0.51)
    page.locator("#tab-wall").click()
    tiles = brightness(page, ".thumb canvas")
    assert max(tiles[3 * 3 + 1], tiles[1 * 3]) < 0.01 and max(tiles) > 0.3, "heads that are off look nowhere"
    expect(page.locator("#panel-wall")).to_contain_text("The model without b1,h3.1,p10")
    page.locator(".thumb").nth(3 * 3 + 1).focus()
    page.evaluate("location.hash = location.hash + '&block=3&head=1'")
    expect(page.locator("#picture .reading")).to_have_text("Class token · block 3, head 1 · switched off")
    page.locator("#methods label", has_text=re.compile("^Rollout$")).click()
    expect(page.locator("#picture .reading")).to_have_text(re.compile("^Rollout"))
    grid = np.array(session.map(0, key, "rollout", cut=cut)["grid"])
    assert percent(page.locator("#picture .legend span").nth(0).inner_text()) == pytest.approx(100 * grid.min(), abs=0.06)
    page.get_by_role("button", name="Show the whole model").click()
    expect(page.locator("#cut")).to_be_hidden()
    expect(page.locator(CANVAS)).to_be_focused()
    expect(page.locator("#predictions .bar .number").first).not_to_contain_text("whole")


def test_the_difference_map_is_scaled_by_what_is_still_there(visit: Visit, session: Session) -> None:
    page = visit("#view=surgery&off=p27,p28")
    expect(page.locator(".verdict").first).to_contain_text("2 parts off")
    change = np.array(session.surgery(0, session.given[0]["picture"], patches=[27, 28])["difference"]).ravel()
    rest = np.abs(np.delete(change, [27, 28])).max()
    assert float(page.locator("#panel-surgery .legend span").nth(1).inner_text()) == pytest.approx(max(rest, 0.05 / 64), rel=0.06)


def test_everything_on_leaves_the_focus_in_the_theatre(visit: Visit) -> None:
    page = visit("#view=surgery&off=b1")
    page.get_by_role("button", name="Switch everything on").click()
    expect(page.get_by_role("switch", name="block 0", exact=True)).to_be_focused()


def test_the_exported_page_says_which_model_is_shown(visit: Visit, session: Session, tmp_path: Path) -> None:
    page = visit("#view=surgery&off=b2", at=export_page(session, tmp_path / "page.html").as_uri())
    rows = {row[0]: row for row in session.surgery(0, session.given[0]["picture"], blocks=[2])["rows"]}
    for name, (now, whole) in shares(page).items():
        _, before, after = rows[int(name.removeprefix("class "))]
        assert now == pytest.approx(100 * after, abs=0.51) and whole == pytest.approx(100 * before, abs=0.51)
    expect(page.locator("#cut")).to_contain_text("picture, maps and wall show it whole")


def test_on_a_phone_a_tap_shows_its_effect_where_the_finger_is(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = opened(context, address + "#view=surgery")
    canvas = page.locator(CANVAS)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.8)
    expect(page.locator("#cut")).to_be_in_viewport()
    expect(page.locator("#cut")).to_contain_text("1 part is off")
    context.close()
