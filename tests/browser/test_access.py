"""The page for everyone: by keyboard, in the system's own colours, and by axe-core's rules."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.browser.test_explorer import CANVAS, reading

pytestmark = pytest.mark.browser

Visit = Callable[..., Page]
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit: Visit, width: int, scheme: str) -> None:
    page = visit("#off=b1,p3")
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    for view in ("wall", "depth", "similar", "surgery", "model", "compare"):
        page.locator(f"#tab-{view}").click()
        page.wait_for_timeout(300)
        answer = Axe().run(page, options=RULES).response
        assert len(answer["passes"]) > 20, "it has looked"
        found = answer["violations"]
        assert [(each["id"], [node["html"][:120] for node in each["nodes"][:3]]) for each in found] == [], view


def test_patches_are_switched_by_keyboard(visit: Visit) -> None:
    page = visit("#view=surgery&method=attention")
    page.locator(CANVAS).focus()
    page.keyboard.press("ArrowRight")
    assert reading(page).startswith("Patch in row 4, column 5")
    page.keyboard.press("Enter")
    expect(page.locator("#cut")).to_contain_text("1 part is off")
    assert "off=p37" in page.url
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(page.locator("#cut")).to_contain_text("2 parts are off")
    assert "off=p37,p45" in page.url
    page.keyboard.press("Space")
    expect(page.locator("#cut")).to_contain_text("1 part is off")


def test_a_rivals_patches_are_switched_by_keyboard_too(visit: Visit) -> None:
    page = visit("#model=1&view=surgery")
    page.locator(CANVAS).focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.locator("#cut")).to_contain_text("1 part is off")
    assert "off=p104" in page.url  # 14 × 14: one to the left of row 7, column 7


def test_dots_are_walked_and_chosen_by_keyboard(visit: Visit) -> None:
    page = visit("#view=model&block=1&head=1")
    expect(page.locator(".dot")).to_have_count(12)
    assert page.locator(".dot[tabindex='0']").count() == 1, "one stop on the way of the Tab key"
    page.locator(".dot[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".dot:focus")).to_have_attribute("aria-label", re.compile("^block 2, head 1: "))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "block=2&head=2" in page.url
    expect(page.locator(".dot:focus")).to_have_attribute("aria-label", re.compile("^block 2, head 2: "))


def test_wall_tiles_say_what_they_show(visit: Visit) -> None:
    page = visit()
    for tile in page.locator(".thumb").all()[:5]:
        name = tile.get_attribute("aria-label") or ""
        assert tile.inner_text().strip() in name, "who speaks what is written meets the tile"


def test_in_the_systems_own_colours_choices_can_be_told_apart(visit: Visit) -> None:
    page = visit("#view=surgery&off=h1.1")
    page.emulate_media(forced_colors="active")

    def look(selector: str, part: str | None = None) -> list[str]:
        script = """([selector, part]) => {
            const style = getComputedStyle(document.querySelector(selector), part);
            return [style.backgroundColor, style.outlineStyle, style.outlineWidth, style.boxShadow];
        }"""
        return page.evaluate(script, [selector, part])

    assert look("#pictures .chip[aria-pressed=true]") != look("#pictures .chip[aria-pressed=false]")
    assert look(".tabs [aria-selected=true]") != look(".tabs [aria-selected=false]")
    assert look(".head-switch[aria-checked=true]", "::after") != look(".head-switch[aria-checked=false]", "::after")
    ramp = page.evaluate("getComputedStyle(document.querySelector('#picture .ramp')).backgroundImage")
    assert "gradient" in ramp
