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
from playwright.sync_api import Browser, BrowserContext, Locator, expect
from tests.browser.conftest import painted, served
from tests.browser.explorer import Explorer, words
from tests.web.conftest import heat
from tests.web.conftest import shares as probabilities

from vitral import look
from vitral.base.progress import track
from vitral.build import create
from vitral.web.answers import ALL_ON, parse_off
from vitral.web.export import export_page
from vitral.web.session import Session

pytestmark = pytest.mark.browser

Visit = Callable[..., Explorer]


def percent(text: str) -> float:
    return float(re.findall(r"[\d.]+", text)[0])


def test_the_sentence_names_the_token_that_gets_most(visit: Visit, session: Session) -> None:
    """Also where it is no patch: the class token got 100 % and the sentence said row 0, column 0."""
    tape = look.watch(session.models[0], session.picture(0, session.initial[0]["picture"]))
    weights = [tape.attention(block)[0].numpy() for block in range(4)]  # (heads, T, T)
    asking = [(block, head, token) for block in range(4) for head in range(3) for token in range(0, 66, 5)]
    prefixed = [place for place in asking if weights[place[0]][place[1:]].argmax() < 2]
    patched = [place for place in asking if weights[place[0]][place[1:]].argmax() >= 2]
    assert prefixed and patched
    page = visit()
    for block, head, token in [*prefixed[:4], *patched[:4]]:
        row = weights[block][head, token]
        page.go(f"#block={block}&head={head}&token={token}")
        expect(page.reading).to_contain_text(words.head(block, head))
        best, patch = int(row.argmax()), int(row[2:].argmax())
        token_name = words.PREFIX[best] if best < 2 else words.place(patch // 8, patch % 8)
        said = page.text().split(f"{words.LOOKS_AT} ")[1]
        assert said.startswith(token_name), (block, head, token)
        assert percent(said.split("(")[1]) == pytest.approx(100 * row.max(), abs=0.51)
        if best < 2:
            assert f"of the patches at {words.place(patch // 8, patch % 8)}" in said


def test_the_live_and_the_exported_page_say_the_same(visit: Visit, session: Session, tmp_path: Path) -> None:
    file = export_page(session, tmp_path / "page.html").as_uri()
    live, exported = visit(), visit(at=file)
    for hash in (f"#block={block}&head={head}&token={token}" for block in (0, 3) for head in (-1, 1) for token in (-1, 0, 9, 30, 65)):
        for page in (live, exported):
            page.go(hash)
            page.wait_for_function("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        assert live.text() == exported.text(), hash


def test_choosing_a_class_explains_it(visit: Visit) -> None:
    """Under Attention, which is the same for every class, nothing happened."""
    page = visit("#method=attention")
    before = page.pixels()
    name = page.names.nth(2).inner_text()
    page.bars.nth(2).click()
    expect(page.reading).to_have_text(words.begins(f"Gradient rollout · {re.escape(name)}"))
    expect(page.toast).to_contain_text(words.SAME_FOR_EVERY_CLASS)
    assert np.abs(page.pixels() - before).max() > 10


def test_the_audits_verdict_stands_beside_the_map(context: BrowserContext, own: Session) -> None:
    own.verdicts[0] = {"rollout": "do not use: it finds nothing (0.45; 0.5: chance)", "relevance": "use: it finds what counts"}
    with served(own) as (address, _):
        page = opened(context, address)
        text = page.method_text
        expect(page.reading).to_have_text(words.begins("Relevance · class "))  # the best by the audit
        page.choose_method("Attention")
        expect(text).not_to_contain_text(words.AUDIT)  # attention was not judged
        page.choose_method("Rollout")
        expect(page.method_verdict).to_have_text(words.audit("do not use"))
        expect(text).to_contain_text("do not use: it finds nothing (0.45; 0.5: chance).")
        page.choose_method("Relevance")
        expect(page.method_verdict).to_have_text(words.audit("use"))


def test_no_path_of_the_machine_is_on_the_page(context: BrowserContext, session: Session, tmp_path: Path) -> None:
    paths = {"/home/ada/private/runs/flowers": session.models[0], "secret/vit_tiny.safetensors": session.models[1]}
    own = Session(paths)
    own.add_initial(painted(1), "first.png")
    file = export_page(own, tmp_path / "page.html")
    assert not re.search("/home/ada|private|secret", file.read_text())
    with served(own) as (address, _):
        page = Explorer(context.new_page())
        page.goto(address + "#view=compare")
        page.ready()
        expect(page.other_bars).to_have_count(5)
        text = page.body.inner_text()
        assert "flowers" in text and "vit_tiny" in text
        assert not re.search("/home/ada|private|secret", text + page.content())


@pytest.fixture
def own(session: Session) -> Session:
    """The same models under a server of the test's own, that may be stopped."""
    own = Session(dict(zip(session.names, session.models, strict=True)))
    for seed in (1, 2):
        own.add_initial(painted(seed), f"{seed}.png")
    return own


def opened(context: BrowserContext, address: str) -> Explorer:
    page = Explorer(context.new_page())
    page.goto(address)
    return page.ready()


def test_a_failed_request_leaves_nothing_of_another_picture(context: BrowserContext, own: Session) -> None:
    with served(own) as (address, _):
        page = opened(context, address)
        second = own.initial[1]["picture"]
        page.route(f"**/{second}/trace", lambda route: route.fulfill(status=503, json={"error": "the line is full", "hint": "try again"}))
        page.pictures.nth(1).click()
        expect(page.failed).to_contain_text(words.not_shown("2.png"))
        expect(page.failed).to_contain_text("the line is full")
        expect(page.work).to_be_hidden()
        page.unroute(f"**/{second}/trace")
        page.retry.click()
        expect(page.work).to_be_visible()
        expect(page.failed).to_be_hidden()


def test_a_stopped_server_leaves_a_lasting_sign(context: BrowserContext, own: Session) -> None:
    with served(own) as (address, _):
        page = opened(context, address)
        expect(page.lost).to_be_hidden()
        page.route("**/api/**", lambda route: route.abort("connectionrefused"))
        page.pictures.nth(1).click()
        expect(page.lost).to_be_visible()
        page.wait_for_timeout(8000)  # longer than a passing message stays
        expect(page.lost).to_be_visible()
        page.unroute("**/api/**")
        expect(page.lost).to_be_hidden(timeout=5000)
        expect(page.work).to_be_visible()
        expect(page.reading).to_have_text(words.begins("Gradient rollout"))


def slowly(session: Session, steps: int = 60) -> list[int]:
    """Occlusion takes `steps` tenths of a second; the list grows with every step."""
    done: list[int] = []
    quick = session.answer

    def slow(what: str, model: int, key: str, **options: Any) -> bytes:
        for step in track(range(steps if options.get("method") == "occlusion" else 0), "Covering"):
            done.append(step)
            time.sleep(0.1)
        return quick(what, model, key, **options)

    session.answer = slow  # type: ignore[method-assign]
    return done


def test_occlusion_shows_its_progress_and_can_be_stopped(context: BrowserContext, own: Session) -> None:
    done = slowly(own)
    with served(own) as (address, _):
        page = opened(context, address)
        page.choose_method("Occlusion")
        expect(page.wait).to_contain_text(words.COMPUTING)
        page.button(words.STOP).first.click()
        expect(page.wait).to_be_hidden()
        expect(page.reading).to_have_text(words.begins(words.OF_CLASS_TOKEN))
        time.sleep(0.5)
        reached = len(done)
        time.sleep(0.5)
        assert len(done) == reached < 60, "the server has stopped too"


def test_a_new_picture_does_not_wait_behind_occlusion(context: BrowserContext, own: Session) -> None:
    done = slowly(own)
    with served(own) as (address, _):
        first, second = opened(context, address), opened(context, address)
        first.choose_method("Occlusion")
        expect(first.wait).to_contain_text(words.COMPUTING)
        began = time.monotonic()
        second.upload(painted(7), "new.png")
        expect(second.chosen_picture).to_have_text("new.png")
        expect(second.loading).to_have_count(0)
        assert time.monotonic() - began < 4 and len(done) < 60
        assert not second.toast.is_visible()
        expect(first.reading).to_have_text(words.begins("Occlusion"), timeout=15_000)


def test_ctrl_c_does_not_wait_for_occlusion(context: BrowserContext, own: Session) -> None:
    done = slowly(own, 300)
    with served(own) as (address, server):
        page = opened(context, address)
        page.choose_method("Occlusion")
        expect(page.wait).to_contain_text(words.COMPUTING)
        server.should_exit = True
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert len(done) < 100


def test_a_reload_keeps_the_uploads_and_back_goes_back(context: BrowserContext, own: Session) -> None:
    with served(own) as (address, _):
        page = opened(context, address)
        page.upload(painted(8), "mine.png")
        chosen = page.chosen_picture
        expect(chosen).to_have_text("mine.png")
        page.reload()
        page.ready()
        expect(chosen).to_have_text("mine.png")
        expect(page.pictures).to_have_count(3)
        page.pictures.nth(1).click()
        expect(chosen).to_have_text("2.png")
        page.show("surgery")
        page.go_back()
        expect(page.panel("wall")).to_be_visible()
        expect(chosen).to_have_text("2.png")
        page.go_back()
        expect(chosen).to_have_text("mine.png")
        assert page.url.startswith(address)


def test_copy_link_says_for_whom_it_works(context: BrowserContext, own: Session, tmp_path: Path) -> None:
    file = export_page(own, tmp_path / "page.html").as_uri()
    with served(own) as (address, _):
        for at, hint in ((address, words.ON_THIS_COMPUTER), (file, words.SEND_THE_FILE)):
            context.grant_permissions(["clipboard-read", "clipboard-write"])
            page = opened(context, at)
            page.link.click()
            expect(page.toast).to_contain_text(hint)


def test_a_visitor_without_the_token_sees_a_page(context: BrowserContext, own: Session) -> None:
    with served(own, host="0.0.0.0", token="secret") as (address, _):
        page = Explorer(context.new_page())
        answer = page.goto(address)
        assert answer and answer.status == 401
        expect(page.headline).to_have_text(words.ASKS_FOR_TOKEN)
        page.goto(address + "?token=secret")
        page.ready()


def brightness(canvases: Locator) -> list[float]:
    """The brightest pixel of each canvas."""
    script = """(all) => all.map((canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let most = 0;
        for (let at = 0; at < data.length; at += 4) most = Math.max(most, data[at] + data[at + 1] + data[at + 2]);
        return most / 765;
    })"""
    return canvases.evaluate_all(script)


def test_a_model_that_attends_evenly_does_not_glow(context: BrowserContext, session: Session) -> None:
    """Each map was stretched to its own range: fresh weights looked like trained ones."""
    torch.manual_seed(1)
    pair = Session({"chooses": session.models[0], "fresh": create("tiny", depth=4, registers=1)})
    pair.add_initial(painted(1), "1.png")
    with served(pair) as (address, _):
        page = opened(context, address + "#method=attention")
        chooses = brightness(page.tile_canvases)
        assert float(np.median(chooses)) > 0.6
        expect(page.scale).to_contain_text(words.ATTENTION_SCALE)
        expect(page.panel("wall")).to_contain_text(words.FLAT_IS_DARK)
        page.models.nth(1).click()
        expect(page.models.nth(1)).to_have_attribute("aria-pressed", "true")
        page.settled()
        fresh = brightness(page.tile_canvases)
        assert max(fresh) < 0.45 < float(np.median(chooses)), (fresh, chooses)
        high = page.legend.nth(1).inner_text()
        assert percent(high) > 100 * 3 / 66, "the legend says how far the colours reach"
        page.choose_method("Occlusion")
        expect(page.reading).to_have_text(words.begins("Occlusion"))
        assert percent(page.legend.nth(1).inner_text()) >= 0.02
        page.choose_method("Grad-CAM")
        expect(page.scale).to_contain_text(words.OWN_SCALE)


def shares(page: Explorer) -> dict[str, tuple[float, float]]:
    """Class → probability as the page has it now, and that of the whole model beside it, in percent."""
    found = {}
    for name, number in zip(page.names.all_inner_texts(), page.numbers.all_inner_texts(), strict=True):
        now, whole = number.split(words.OF_WHOLE)
        found[name] = (percent(now), percent(whole))
    return found


def test_with_parts_off_the_whole_page_shows_the_cut_model(visit: Visit, session: Session) -> None:
    """Prediction, picture and wall showed the uncut model while surgery showed another."""
    key, off = session.initial[0]["picture"], parse_off("h3.1,b1,p10")
    page = visit("#view=surgery")
    expect(page.cut).to_be_hidden()
    page.switch(3, 1).click()
    page.switch(1).click()
    page.click_patch(1, 2)
    expect(page.cut).to_contain_text(words.off(3))
    page.point_nowhere()
    before, after = (100 * probabilities(session, key, parts) for parts in (ALL_ON, off))
    shown = shares(page)
    assert len(shown) >= 5
    for name, (now, whole) in shown.items():
        index = int(name.removeprefix("class "))
        assert now == pytest.approx(after[index], abs=0.51) and whole == pytest.approx(before[index], abs=0.51)
    page.show("wall")
    tiles = brightness(page.tile_canvases)
    assert max(tiles[3 * 3 + 1], tiles[1 * 3]) < 0.01 and max(tiles) > 0.3, "heads that are off look nowhere"
    expect(page.panel("wall")).to_contain_text(words.without("b1,h3.1,p10"))
    page.tiles.nth(3 * 3 + 1).focus()
    page.evaluate("location.hash = location.hash + '&block=3&head=1'")
    expect(page.reading).to_have_text(f"{words.OF_CLASS_TOKEN} · {words.head(3, 1)} · {words.SWITCHED_OFF}")
    page.choose_method("Rollout")
    expect(page.reading).to_have_text(words.begins("Rollout"))
    grid = heat(session.answer("map", 0, key, method="rollout", off=off))
    assert percent(page.legend.nth(0).inner_text()) == pytest.approx(100 * grid.min(), abs=0.06)
    page.button(words.SHOW_WHOLE).click()
    expect(page.cut).to_be_hidden()
    expect(page.canvas).to_be_focused()
    expect(page.numbers.first).not_to_contain_text(words.OF_WHOLE)


def test_the_difference_map_is_scaled_by_what_is_still_there(visit: Visit, session: Session) -> None:
    page = visit("#view=surgery&off=p27,p28")
    expect(page.verdict.first).to_contain_text(words.verdict(2))
    key = session.initial[0]["picture"]
    before, after = (heat(session.answer("map", 0, key, method="rollout", off=parts)) for parts in (ALL_ON, parse_off("p27,p28")))
    change = (after - before).ravel()
    rest = np.abs(np.delete(change, [27, 28])).max()
    assert float(page.difference_legend.nth(1).inner_text()) == pytest.approx(max(rest, 0.05 / 64), rel=0.06)


def test_everything_on_leaves_the_focus_in_the_theatre(visit: Visit) -> None:
    page = visit("#view=surgery&off=b1")
    page.button(words.ALL_ON).click()
    expect(page.switch(0)).to_be_focused()


def test_the_exported_page_says_which_model_is_shown(visit: Visit, session: Session, tmp_path: Path) -> None:
    page = visit("#view=surgery&off=b2", at=export_page(session, tmp_path / "page.html").as_uri())
    before, after = (100 * probabilities(session, session.initial[0]["picture"], parts) for parts in (ALL_ON, parse_off("b2")))
    for name, (now, whole) in shares(page).items():
        index = int(name.removeprefix("class "))
        assert now == pytest.approx(after[index], abs=0.51) and whole == pytest.approx(before[index], abs=0.51)
    expect(page.cut).to_contain_text(words.SHOWN_WHOLE)


def test_on_a_phone_a_tap_shows_its_effect_where_the_finger_is(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = opened(context, address + "#view=surgery")
    page.canvas.scroll_into_view_if_needed()
    page.touchscreen.tap(*page.spot(0.5, 0.8))
    expect(page.cut).to_be_in_viewport()
    expect(page.cut).to_contain_text(words.off(1))
    context.close()
