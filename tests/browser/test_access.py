"""The page for everyone: by keyboard, in the system's own colours, and by axe-core's rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect
from tests.browser.explorer import Explorer, words

pytestmark = pytest.mark.browser

Visit = Callable[..., Explorer]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit: Visit, width: int, scheme: str) -> None:
    page = visit("#off=b1,p3")
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    for view in ("wall", "depth", "similar", "surgery", "model", "compare"):
        page.show(view)
        page.wait_for_timeout(300)
        assert page.faults() == [], view


def test_patches_are_switched_by_keyboard(visit: Visit) -> None:
    page = visit("#view=surgery&method=attention")
    page.canvas.focus()
    page.keyboard.press("ArrowRight")
    assert page.text().startswith(words.of_patch(4, 5))
    page.keyboard.press("Enter")
    expect(page.cut).to_contain_text(words.off(1))
    assert "off=p37" in page.url
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(page.cut).to_contain_text(words.off(2))
    assert "off=p37,p45" in page.url
    page.keyboard.press("Space")
    expect(page.cut).to_contain_text(words.off(1))


def test_a_rivals_patches_are_switched_by_keyboard_too(visit: Visit) -> None:
    page = visit("#model=1&view=surgery")
    page.canvas.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.cut).to_contain_text(words.off(1))
    assert "off=p104" in page.url  # 14 × 14: one to the left of row 7, column 7


def test_dots_are_walked_and_chosen_by_keyboard(visit: Visit) -> None:
    page = visit("#view=model&block=1&head=1")
    expect(page.dots).to_have_count(12)
    assert page.dot_of_tab_key.count() == 1, "one stop on the way of the Tab key"
    page.dot_of_tab_key.focus()
    page.keyboard.press("ArrowRight")
    expect(page.focused_dot).to_have_attribute("aria-label", words.begins("block 2, head 1: "))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "block=2&head=2" in page.url
    expect(page.focused_dot).to_have_attribute("aria-label", words.begins("block 2, head 2: "))


def test_wall_tiles_say_what_they_show(visit: Visit) -> None:
    page = visit()
    for tile in page.tiles.all()[:5]:
        name = tile.get_attribute("aria-label") or ""
        assert tile.inner_text().strip() in name, "who speaks what is written meets the tile"


def test_in_the_systems_own_colours_choices_can_be_told_apart(visit: Visit) -> None:
    page = visit("#view=surgery&off=h1.1")
    page.emulate_media(forced_colors="active")

    def look(what: Locator, part: str | None = None) -> list[str]:
        script = """(node, part) => {
            const style = getComputedStyle(node, part);
            return [style.backgroundColor, style.outlineStyle, style.outlineWidth, style.boxShadow];
        }"""
        return what.first.evaluate(script, part)

    assert look(page.chosen_picture) != look(page.other_pictures)
    assert look(page.chosen_tab) != look(page.other_tabs)
    assert look(page.heads_on, "::after") != look(page.heads_off, "::after")
    assert "gradient" in page.ramp.first.evaluate("ramp => getComputedStyle(ramp).backgroundImage")
