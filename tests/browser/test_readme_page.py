"""README.md in a real browser: its height on a desktop, nothing wider than the page, and pictures that load."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.browser
HIGHEST = 4500
"""Pixels at a width of 830."""


def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location("show_readme", ROOT / "docs/show_readme.py")
    assert specification is not None and specification.loader is not None
    module = sys.modules[specification.name] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [830, 400])
def test_the_readme_fits(width: int, scheme: str, browser: Browser) -> None:
    readme = script()
    with readme.shown(readme.README.read_text(encoding="utf-8"), width, scheme, browser=browser) as view:
        assert readme.height(view) <= (HIGHEST if width == 830 else 2 * HIGHEST)
        assert view.evaluate("document.documentElement.scrollWidth") <= width
        assert view.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")
        assert view.evaluate("document.images.length") == 6
        seen = view.evaluate("[...document.querySelectorAll('pre')].findIndex((block) => block.getBoundingClientRect().top > 900)")
        assert width < 830 or seen >= 1, "what to type is on the first screen"
