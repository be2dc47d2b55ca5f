"""A template and what it shows → one file: self-contained, escaped, without scripts, light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from vitral.base import text
from vitral.base.files import write_atomic
from vitral.base.text import NOTHING
from vitral.base.version import __version__
from vitral.report.lenient_json import number

SHOWN = 12
"""Items of a list that are written out."""


class Page(type(Path())):
    """The path of a page, which a notebook shows as the page itself."""

    def _repr_html_(self) -> str:
        content = escape(self.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{content}" sandbox width="100%" height="640" style="border: 1px solid #ccc"></iframe>'


def write_page(template: str, path: str | Path, **content: Any) -> Page:
    """Everything in `content` is plain text to the template: it is escaped as it is put in."""
    return Page(write_atomic(path, pages().get_template(template).render(content, version=__version__)))


@cache
def pages() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vitral.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "show": show,
        "percent": percent,
        "spaced": lambda name: str(name).replace("_", " "),
        "numeric_columns": numeric_columns,
        "with_contents": with_contents,
    }
    return environment


def show(value: Any) -> str:
    """A value of a config as a reader wants it."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        shown = ", ".join(map(show, value[:SHOWN]))
        return f"{shown}, … ({len(value):,} in all)" if len(value) > SHOWN else shown
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {show(item)}" for key, item in value.items())
    return str(value)


def percent(value: Any, digits: int = 1) -> str:
    return text.percent(number(value), digits)


def numeric_columns(rows: Iterable[Sequence[Any]]) -> list[bool]:
    """For each column, whether it holds nothing but numbers: these stand to the right."""
    return [all(map(_looks_like_number, column)) for column in zip(*rows, strict=False)]


def with_contents(body: str) -> tuple[Markup, list[tuple[str, Markup, int]]]:
    """A page with a mark at each heading, and (mark, heading, level) of all. What folders hold is escaped: the headings are our own."""
    contents: list[tuple[str, Markup, int]] = []

    def marked(found: re.Match[str]) -> str:
        level, heading = found.groups()
        mark = f"part-{len(contents) + 1}"
        contents.append((mark, Markup(heading), int(level)))
        return f'<h{level} id="{mark}">{heading}</h{level}>'

    return Markup(re.sub(r"<h([23])>(.*?)</h\1>", marked, str(body))), contents


def _looks_like_number(value: Any) -> bool:
    text = show(value)
    return text == NOTHING or (text[:1] in tuple("0123456789-−+<≤") and text != "-" and len(text) < 24 and "(" not in text)
