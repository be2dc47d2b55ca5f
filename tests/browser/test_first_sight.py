"""What the explorer shows first, in each of its three forms: a class-specific map, labelled sinks, whole names, pictures in sight."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.browser.conftest import opened, painted, served
from tests.browser.test_story import sink

from vitral import look
from vitral.base.origin import known
from vitral.build import create
from vitral.data.images.preprocess import open_picture
from vitral.web.export import export_page
from vitral.web.live import export_live, rounded
from vitral.web.pack import unpack
from vitral.web.session import Session

pytestmark = pytest.mark.browser

Visit = Callable[..., Page]
READING = "#picture .reading"
FITS = """bars => bars.every((bar) => {
  const name = bar.querySelector(".name");
  const paper = document.createElement("canvas").getContext("2d");
  paper.font = getComputedStyle(name).font;
  const room = name.getBoundingClientRect().width >= paper.measureText("magnetic compass").width;
  return room && name.scrollWidth <= name.clientWidth && getComputedStyle(name).whiteSpace === "normal";
})"""


def test_the_first_map_is_of_the_predicted_class(visit: Visit, session: Session) -> None:
    page = visit("")
    best = look.predict(session.models[0], session.picture(0, session.given[0]["picture"]))[0][0][0]
    expect(page.locator(READING)).to_have_text(f"Gradient rollout · {best}")
    expect(page.locator("#picture-text")).to_contain_text(f"Bright patches count most for “{best}”.")
    page.locator("#models button").nth(1).click()
    expect(page.locator(READING)).to_have_text(re.compile("^Grad-CAM · "))  # a CNN has no attention
    expect(page.locator("#methods label", has_text="Attention")).to_have_attribute("title", re.compile("^Needs attention"))


def test_an_old_link_to_a_head_still_shows_its_attention(visit: Visit) -> None:
    expect(visit("#block=2&head=1").locator(READING)).to_have_text(re.compile("^Class token · block 2, head 1"))


def test_an_exported_page_opens_in_the_same_way(browser: Browser, session: Session, tmp_path: Path) -> None:
    alone = Session({"tiny-vit": session.models[0]})
    alone.give(painted(1), "first.png")
    with opened(browser, export_page(alone, tmp_path / "page.html")) as page:
        expect(page.locator(READING)).to_have_text(re.compile("^Gradient rollout · "))


def test_a_live_page_brings_the_maps_that_it_cannot_compute(browser: Browser, session: Session, tmp_path: Path) -> None:
    alone, same = Session({"tiny-vit": session.models[0]}), Session({"tiny-vit": rounded(session.models[0])})
    alone.give(painted(1), "first.png")
    key = same.give(painted(1), "first.png")
    with opened(browser, export_live(alone, tmp_path / "page.html")) as page:
        expect(page.locator(READING)).to_have_text(re.compile("^Gradient rollout · "))
        shown = page.evaluate("key => window.vitral.source.map(0, key, 'gradient_rollout', null, new Set())", key)
        assert shown == same.map(0, key, "gradient_rollout", shown["target"])
        expect(page.locator("#methods input:disabled")).to_have_count(0)
        page.locator("#file").set_input_files({"name": "mine.png", "mimeType": "image/png", "buffer": painted(7)})
        expect(page.locator(READING)).to_have_text(re.compile("^Rollout"))
        expect(page.locator("#methods input:disabled")).to_have_count(3)
        expect(page.locator("#method-why")).to_contain_text("needs gradients, which this page does not compute")
        expect(page.locator("#pictures img")).to_have_count(2)
        with torch.no_grad():
            image = open_picture(painted(1), same.models[0]).tensor[None]
            before, after = (model(image)[0].softmax(dim=0) for model in (alone.models[0], same.models[0]))
        most = f"{100 * float((after - before).abs().max()):.2f} percentage points"
        expect(page.locator("#runs")).to_contain_text(
            f"On its own pictures this page changes 0 of 1 answers, and a probability by at most {most}."
        )


def test_attention_sinks_have_a_label_where_they_show(visit: Visit) -> None:
    parked = sink()
    header, _ = unpack(parked.story(0, parked.given[0]["picture"]))
    (token, _), *others = header["sinks"][1]["tokens"]
    assert not others
    with served(parked) as (address, _):
        page = visit(at=address)
        expect(page.locator("#picture")).to_contain_text(
            "Dashed: an attention sink. Most tokens attend to it. This patch stores global information."
        )
        found = page.evaluate(
            """async () => {
              const source = await import("/static/source.js").then(({ openSource }) => openSource());
              return (await source.trace(0, source.session.pictures[0].picture)).sinks(1);
            }"""
        )
        assert found == [token - header["prefix"]]
        page.locator("#block").fill("0")
        expect(page.locator("#picture")).not_to_contain_text("Dashed")


def test_the_similar_tab_leaves_the_method_of_the_others_alone(visit: Visit) -> None:
    for hash, reading in (("", "^Gradient rollout"), ("#method=rollout", "^Rollout"), ("#method=similarity", "^Similarity")):
        page = visit(hash)
        for tab in ("wall", "surgery", "compare"):
            page.locator("#tab-similar").click()
            expect(page.locator(READING)).to_have_text(re.compile("^Similarity"))
            page.locator(f"#tab-{tab}").click()
            expect(page.locator(READING)).to_have_text(re.compile(reading))
        page.close()


@pytest.mark.parametrize("width", [1280, 1920])
def test_names_are_whole_when_a_part_is_off(context: BrowserContext, width: int) -> None:
    torch.manual_seed(0)
    model = create("tiny")
    names = [f"{first} {second}" for first in ("magnetic", "German short-haired") for second in ("compass", "pointer", "a", "b", "c")]
    model.origin = dataclasses.replace(model.origin, classes=known(tuple(names)))
    named = Session({"named": model})
    named.give(painted(1), "first.png")
    with served(named) as (address, _):
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{address}#off=h1.2")
        expect(page.locator("#predictions .number").first).to_contain_text("whole")
        assert page.locator("#predictions .bar").evaluate_all(FITS)


def test_save_as_closes_with_escape_and_with_a_click_elsewhere(visit: Visit) -> None:
    page = visit()
    menu = page.locator("#save-as")
    menu.locator("summary").click()
    expect(menu).to_have_attribute("open", "")
    page.keyboard.press("Escape")
    expect(menu).not_to_have_attribute("open", "")
    expect(menu.locator("summary")).to_be_focused()
    menu.locator("summary").click()
    page.locator("#picture-title").click()
    expect(menu).not_to_have_attribute("open", "")


def test_an_uploaded_picture_is_in_sight_and_has_a_thumbnail(visit: Visit) -> None:
    page = visit()
    for number in range(5):
        page.locator("#file").set_input_files(
            {"name": f"a long name {number}.png", "mimeType": "image/png", "buffer": painted(20 + number)}
        )
        expect(page.locator("#pictures .chip[aria-pressed=true]")).to_have_text(f"a long name {number}.png")
    strip, chip = page.locator("#pictures").bounding_box(), page.locator("#pictures .chip[aria-pressed=true]").bounding_box()
    assert strip and chip and strip["x"] <= chip["x"] and chip["x"] + chip["width"] <= strip["x"] + strip["width"]
    assert page.locator("#pictures .chip img").evaluate_all("all => all.map((image) => image.naturalWidth)") == [48] * 7


def test_percentages_look_the_same(visit: Visit) -> None:
    shown = visit().evaluate(
        "() => import('/static/dom.js').then(({ percent }) => [0.964, 1, 0.0312, 0.0004, 0].map((share) => percent(share)))"
    )
    assert shown == ["96.4\u00a0%", "100.0\u00a0%", "3.1\u00a0%", "<\u00a00.1\u00a0%", "0.0\u00a0%"]
