"""Sections → one HTML file: self-contained, escaped, without scripts, light and dark. And how pages read what folders hold.

A section is a heading with parts. `part` makes one by a macro of parts.html: a table, a text, figures, a gallery.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jinja2
from markupsafe import Markup

from vitral.base import text
from vitral.base.errors import DataError
from vitral.base.files import read_json, write_atomic
from vitral.base.text import NOTHING
from vitral.base.version import __version__

_SHOWN = 12
"""Items of a list that are written out."""


class Page(type(Path())):
    """The path of a page, which a notebook shows as the page itself."""

    def _repr_html_(self) -> str:
        content = escape(self.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{content}" sandbox width="100%" height="640" style="border: 1px solid #ccc"></iframe>'


class Section(NamedTuple):
    """Left out of a page where it has no parts."""

    title: str
    """Empty: the parts follow what is above."""
    parts: list[Markup]
    level: int = 2


_Kind = Literal["table", "named_values", "facts", "text", "note", "code", "items", "figures", "frames", "gallery", "embedding_map"]
"""The macros of parts.html."""


def part(kind: _Kind, content: Any, *more: Any) -> list[Markup]:
    """A part of a section, left out where it has no content. Every value is plain text to the macro: it is escaped as it is put in."""
    return [getattr(pages().get_template("parts.html").module, kind)(content, *more)] if content else []


def section(title: str, *parts: list[Markup] | str, level: int = 2) -> Section:
    """A heading and what is under it; a text becomes a paragraph, an empty one nothing."""
    return Section(title, [markup for one in parts for markup in (part("text", one) if isinstance(one, str) else one)], level)


def environment(recorded: Mapping[str, Any]) -> list[Markup]:
    return part("named_values", recorded) or part("note", "the machine and the versions were not recorded")


def write_page(path: str | Path, title: str, sections: Iterable[Section], lead: str = "", notes: Sequence[str] = ()) -> Page:
    template = pages().get_template("page.html")
    filled = [section for section in sections if section.parts]
    content = template.render(title=title, lead=lead, notes=notes, sections=filled, version=__version__)
    return Page(write_atomic(path, content))


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
        "spaced": lambda name: str(name).replace("_", " "),
        "numeric_columns": _numeric_columns,
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
        shown = ", ".join(map(show, value[:_SHOWN]))
        return f"{shown}, … ({len(value):,} in all)" if len(value) > _SHOWN else shown
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {show(item)}" for key, item in value.items())
    return str(value)


def percent(value: Any, digits: int = 1) -> str:
    return text.percent(number(value), digits)


def _numeric_columns(rows: Iterable[Sequence[Any]]) -> list[bool]:
    """For each column, whether it holds nothing but numbers: these stand to the right."""
    return [all(map(_looks_like_number, column)) for column in zip(*rows, strict=False)]


def _looks_like_number(value: Any) -> bool:
    text = show(value)
    return text == NOTHING or (text[:1] in tuple("0123456789-−+<≤") and text != "-" and len(text) < 24 and "(" not in text)


# ---- what a folder's files hold: anything may be missing or damaged, then the page says so and shows the rest ----


def read_object(path: Path, notes: list[str], missing: str = "") -> dict[str, Any]:
    """The JSON object in a file, or an empty one and a note; `missing`: what it means that there is no such file, where it matters."""
    if not path.exists():
        notes += [f"{path.name} is missing: {missing}"] if missing else []
        return {}
    try:
        stored = read_json(path)
    except DataError as error:
        notes.append(str(error))
        return {}
    if not isinstance(stored, dict):
        notes.append(f"{path} holds no JSON object: it may be damaged, write it again")
    return mapping(stored)


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None
