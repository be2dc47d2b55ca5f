"""README.md in a real browser: its height on a desktop, nothing wider than the page, and pictures that load."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.browser
HIGHEST = 4500
"""Pixels at a width of 830."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [830, 400])
def test_the_readme_fits(width: int, scheme: str, browser: Browser) -> None:
    readme = load_script(ROOT / "docs/show_readme.py")
    with readme.shown(readme.README.read_text(encoding="utf-8"), width, scheme, browser=browser) as view:
        assert readme.height(view) <= (HIGHEST if width == 830 else 2 * HIGHEST)
        assert view.evaluate("document.documentElement.scrollWidth") <= width
        assert view.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")
        assert view.evaluate("document.images.length") == 6
        seen = view.evaluate("[...document.querySelectorAll('pre')].findIndex((block) => block.getBoundingClientRect().top > 900)")
        assert width < 830 or seen >= 1, "what to type is on the first screen"
