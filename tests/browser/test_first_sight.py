"""What the explorer shows first, in each of its three forms: a class-specific map, labelled sinks, whole names, pictures in sight."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, BrowserContext, expect
from tests.browser.conftest import opened, painted, served
from tests.browser.explorer import Explorer, words
from tests.browser.test_story import sink

from vitral import look
from vitral.base.origin import fact
from vitral.build import create
from vitral.data.images.preprocess import open_picture
from vitral.web.export import export_page
from vitral.web.live import export_live, rounded
from vitral.web.pack import unpack
from vitral.web.session import Session

pytestmark = pytest.mark.browser

Visit = Callable[..., Explorer]
FITS = """bars => bars.every((bar) => {
  const name = bar.querySelector(".name");
  const paper = document.createElement("canvas").getContext("2d");
  paper.font = getComputedStyle(name).font;
  const room = name.getBoundingClientRect().width >= paper.measureText("magnetic compass").width;
  return room && name.scrollWidth <= name.clientWidth && getComputedStyle(name).whiteSpace === "normal";
})"""


def test_the_first_map_is_of_the_predicted_class(visit: Visit, session: Session) -> None:
    page = visit("")
    best = look.predict(session.models[0], session.picture(0, session.initial[0]["picture"]))[0][0][0]
    expect(page.reading).to_have_text(f"Gradient rollout · {best}")
    expect(page.meaning).to_contain_text(words.bright(best))
    page.models.nth(1).click()
    expect(page.reading).to_have_text(words.begins("Grad-CAM · "))  # a CNN has no attention
    expect(page.method("Attention")).to_have_attribute("title", words.begins("Needs attention"))


def test_an_old_link_to_a_head_still_shows_its_attention(visit: Visit) -> None:
    expect(visit("#block=2&head=1").reading).to_have_text(words.begins(f"{words.OF_CLASS_TOKEN} · {words.head(2, 1)}"))


def test_an_exported_page_opens_in_the_same_way(browser: Browser, session: Session, tmp_path: Path) -> None:
    alone = Session({"tiny-vit": session.models[0]})
    alone.add_initial(painted(1), "first.png")
    with opened(browser, export_page(alone, tmp_path / "page.html")) as page:
        expect(page.reading).to_have_text(words.begins("Gradient rollout · "))


def test_a_live_page_brings_the_maps_that_it_cannot_compute(browser: Browser, session: Session, tmp_path: Path) -> None:
    alone, same = Session({"tiny-vit": session.models[0]}), Session({"tiny-vit": rounded(session.models[0])})
    alone.add_initial(painted(1), "first.png")
    key = same.add_initial(painted(1), "first.png")
    with opened(browser, export_live(alone, tmp_path / "page.html")) as page:
        expect(page.reading).to_have_text(words.begins("Gradient rollout · "))
        shown = page.ask("map", picture=key, method="gradient_rollout")
        header, sections = unpack(same.answer("map", 0, key, method="gradient_rollout", target=shown["target"]))
        assert shown["values"] == np.ravel(sections["values"]).tolist() and shown["note"] == header["note"]
        expect(page.unavailable_methods).to_have_count(0)
        page.upload(painted(7), "mine.png")
        expect(page.reading).to_have_text(words.begins("Rollout"))
        expect(page.unavailable_methods).to_have_count(3)
        expect(page.method_why).to_contain_text(words.NEEDS_GRADIENTS)
        expect(page.thumbnails).to_have_count(2)
        with torch.no_grad():
            image = open_picture(painted(1), same.models[0]).tensor[None]
            before, after = (model(image)[0].softmax(dim=0) for model in (alone.models[0], same.models[0]))
        most = f"{100 * float((after - before).abs().max()):.2f} percentage points"
        expect(page.runs).to_contain_text(words.changes_at_most(most))


def test_attention_sinks_have_a_label_where_they_show(visit: Visit) -> None:
    parked = sink()
    header, _ = unpack(parked.answer("story", 0, parked.initial[0]["picture"]))
    (token, _), *others = header["sinks"][1]["tokens"]
    assert not others
    with served(parked) as (address, _):
        page = visit(at=address)
        expect(page.picture).to_contain_text(words.SINK)
        assert page.sinks(1) == [token - header["prefix"]]
        page.block.fill("0")
        expect(page.picture).not_to_contain_text(words.DASHED)


def test_the_similar_tab_leaves_the_method_of_the_others_alone(visit: Visit) -> None:
    for hash, reading in (("", "Gradient rollout"), ("#method=rollout", "Rollout"), ("#method=similarity", "Similarity")):
        page = visit(hash)
        for tab in ("wall", "surgery", "compare"):
            page.show("similar")
            expect(page.reading).to_have_text(words.begins("Similarity"))
            page.show(tab)
            expect(page.reading).to_have_text(words.begins(reading))
        page.close()


@pytest.mark.parametrize("width", [1280, 1920])
def test_names_are_whole_when_a_part_is_off(context: BrowserContext, width: int) -> None:
    torch.manual_seed(0)
    model = create("tiny")
    names = [f"{first} {second}" for first in ("magnetic", "German short-haired") for second in ("compass", "pointer", "a", "b", "c")]
    model.origin = dataclasses.replace(model.origin, classes=fact(tuple(names)))
    named = Session({"named": model})
    named.add_initial(painted(1), "first.png")
    with served(named) as (address, _):
        page = Explorer(context.new_page())
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{address}#off=h1.2")
        expect(page.numbers.first).to_contain_text(words.OF_WHOLE)
        assert page.bars.evaluate_all(FITS)


def test_save_as_closes_with_escape_and_with_a_click_elsewhere(visit: Visit) -> None:
    page = visit()
    menu, summary = page.save_menu, page.save_summary
    summary.click()
    expect(menu).to_have_attribute("open", "")
    page.keyboard.press("Escape")
    expect(menu).not_to_have_attribute("open", "")
    expect(summary).to_be_focused()
    summary.click()
    page.title.click()
    expect(menu).not_to_have_attribute("open", "")


def test_an_uploaded_picture_is_in_sight_and_has_a_thumbnail(visit: Visit) -> None:
    page = visit()
    for number in range(5):
        page.upload(painted(20 + number), f"a long name {number}.png")
        expect(page.chosen_picture).to_have_text(f"a long name {number}.png")
    strip, chip = page.strip.bounding_box(), page.chosen_picture.bounding_box()
    assert strip and chip and strip["x"] <= chip["x"] and chip["x"] + chip["width"] <= strip["x"] + strip["width"]
    assert page.thumbnails.evaluate_all("all => all.map((image) => image.naturalWidth)") == [48] * 7


def test_percentages_look_the_same(visit: Visit) -> None:
    shown = visit().percentages([0.964, 1, 0.0312, 0.0004, 0])
    assert shown == ["96.4\u00a0%", "100.0\u00a0%", "3.1\u00a0%", "<\u00a00.1\u00a0%", "0.0\u00a0%"]
