"""README.md as a code host shows it, nearly: python-markdown, a column of 830 pixels, and what a phone makes of it.

    python docs/show_readme.py --out shots            # light and dark, 830 and 400 pixels wide, and their heights

Tests measure the same page. The host's own renderer differs by a few pixels a block.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"
WIDTHS = (830, 400)
"""Pixels: the column on a desktop, a phone."""
SCHEMES = ("light", "dark")
STYLE = """
:root { --ink: #1f2328; --page: #fff; --soft: #59636e; --line: #d1d9e0; --code: #f6f8fa; --link: #0969da }
@media (prefers-color-scheme: dark) {
  :root { --ink: #f0f6fc; --page: #0d1117; --soft: #9198a1; --line: #3d444d; --code: #151b23; --link: #4493f8 }
}
* { box-sizing: border-box }
body { margin: 0; padding: 32px; color: var(--ink); background: var(--page); overflow-wrap: break-word;
  font: 16px/1.5 -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif }
p, ul, ol, table, pre, details, blockquote { margin: 0 0 16px }
h1, h2, h3 { margin: 24px 0 16px; font-weight: 600; line-height: 1.25 }
h1 { font-size: 2em; margin-top: 0 } h2 { font-size: 1.5em } h3 { font-size: 1.25em }
h1, h2 { padding-bottom: .3em; border-bottom: 1px solid var(--line) }
a { color: var(--link) }
img { max-width: 100%; box-sizing: content-box }
ul, ol { padding-left: 2em }
code { padding: .2em .4em; font: 85% ui-monospace, "Liberation Mono", monospace; background: var(--code); border-radius: 6px }
pre { padding: 16px; overflow: auto; font-size: 85%; line-height: 1.45; background: var(--code); border-radius: 6px }
pre code { padding: 0; font-size: 100%; background: none }
table { display: block; width: max-content; max-width: 100%; overflow: auto; border-collapse: collapse; border-spacing: 0 }
th, td { padding: 6px 13px; border: 1px solid var(--line) }
th { font-weight: 600 }
sub, sup { font-size: 75%; line-height: 0 }
@media (max-width: 600px) { body { padding: 16px } }
"""


def page(text: str, base: Path) -> str:
    """The document, its pictures beside it."""
    import markdown

    body = markdown.markdown(text, extensions=["tables", "fenced_code", "md_in_html", "sane_lists"])
    body = re.sub(r"\[!\w+\]", "", body)
    return f'<!doctype html><meta charset="utf-8"><base href="{base.absolute().as_uri()}/"><style>{STYLE}</style><body>{body}'


@contextlib.contextmanager
def shown(text: str, width: int, scheme: str = "light", base: Path = README.parent, browser: Any = None) -> Iterator[Any]:
    """The document in a browser, a new one where none is given, its pictures loaded."""
    phone: dict[str, Any] = {"is_mobile": True, "has_touch": True} if width < 600 else {}
    with contextlib.ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "readme.html"
        file.write_text(page(text, base).replace("<meta", '<meta name="viewport" content="width=device-width"><meta', 1), encoding="utf-8")
        if browser is None:
            from playwright.sync_api import sync_playwright

            play = stack.enter_context(sync_playwright())
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            stack.callback(browser.close)
        view = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, **phone)
        stack.callback(view.close)
        view.goto(file.as_uri())
        view.wait_for_function("[...document.images].every((image) => image.complete)")
        yield view


def height(view: Any) -> int:
    return view.evaluate("document.body.scrollHeight")


def main() -> None:
    asked = argparse.ArgumentParser(description="README.md as pictures, and its heights.")
    asked.add_argument("--out", type=Path, default=Path("shots"))
    asked.add_argument("--name", default="readme")
    given = asked.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for width in WIDTHS:
        for scheme in SCHEMES:
            with shown(README.read_text(encoding="utf-8"), width, scheme) as view:
                file = given.out / f"{given.name}-{width}-{scheme}.png"
                view.screenshot(path=file, full_page=True)
                print(f"{file}  {height(view):,} px high")


if __name__ == "__main__":
    main()
