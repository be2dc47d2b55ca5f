"""The page of the most confident errors, as a reader has it on a desk and on a phone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from playwright.sync_api import Browser, expect
from tests.report.test_worst import place as place  # the fixture: an audited model, six pictures, four errors
from tests.report.test_worst import write_page

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [1280, 400])
def test_every_error_can_be_seen_with_its_maps_neighbours_and_verdict(browser: Browser, place: SimpleNamespace, width: int) -> None:
    write_page(place)
    context = browser.new_context(viewport={"width": width, "height": 800}, offline=True)
    page = context.new_page()
    page.goto(Path("look/worst.html").resolve().as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing to scroll sideways"
    expect(page.get_by_text("The audit of this model says of relevance: with care: it wavers.")).to_be_visible()
    tile = page.locator(".tile").first
    expect(tile.locator("figure")).to_have_count(9)  # the picture, two maps, three near it, three that were learnt from
    boxes = [figure.bounding_box() for figure in tile.locator("figure").all()]
    assert all(box and box["width"] >= 90 and box["x"] + box["width"] <= width for box in boxes), "large enough to see, and on the page"
    drawn = page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    assert drawn, "every picture is in the file"
    tops = {round(box["y"]) for box in boxes if box}
    assert len(tops) == (1 if width == 1280 else 3)
    tile.locator(".zoom").first.click()
    large = tile.locator(".zoom img").first.bounding_box()
    assert large and large["width"] > 0.9 * min(width, 800)
    context.close()
