"""A small builder of self-contained HTML: escaped text, pictures inside the page, no scripts, light and dark.

The page forbids itself everything but its own styles and pictures (Content-Security-Policy), so that whatever a folder's
files hold, opening the report fetches nothing and runs nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.base.errors import DataError
from vitral.base.files import read_bounded, write_atomic
from vitral.base.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE_LIMIT = 12 * 2**20
SIGNATURES = {".png": (b"\x89PNG\r\n\x1a\n", "image/png"), ".jpg": (b"\xff\xd8\xff", "image/jpeg"), ".svg": (b"<", "image/svg+xml")}


class Cell:
    """A table cell with a class of its own: `known`, `assumed`."""

    def __init__(self, text: str, kind: str) -> None:
        self.text, self.kind = text, kind

    def __str__(self) -> str:
        return self.text


class Page:
    """Text goes in as plain text and is escaped here, in one place."""

    def __init__(self, title: str, lead: str = "") -> None:
        self.title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]
        if lead:
            self._parts.append(f'<p class="lead">{escape(lead)}</p>')

    def section(self, title: str) -> None:
        self._parts.append(f"<h2>{escape(title)}</h2>")

    def subsection(self, title: str) -> None:
        self._parts.append(f"<h3>{escape(title)}</h3>")

    def text(self, text: str) -> None:
        self._parts.append(f"<p>{escape(text)}</p>")

    def note(self, text: str) -> None:
        """Something the reader must not miss: a missing file, an assumption."""
        self._parts.append(f'<p class="note">{escape(text)}</p>')

    def code(self, text: str) -> None:
        self._parts.append(f"<pre><code>{escape(text)}</code></pre>")

    def listing(self, items: Sequence[str]) -> None:
        self._parts.append("<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>")

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[Any]], summary: str = "") -> None:
        """Numbers (and columns that hold only numbers) stand to the right; with a `summary` the table is folded behind it."""
        columns = [[row[index] for row in rows if index < len(row)] for index in range(len(heads))]
        right = [bool(column) and all(_looks_like_number(value) for value in column) for column in columns]
        head = "".join(
            f'<th scope="col"{_kind("number" if flag else "")}>{escape(name)}</th>' for name, flag in zip(heads, right, strict=True)
        )
        body = "".join("<tr>" + "".join(_cell(value, flag) for value, flag in zip(row, right, strict=False)) + "</tr>" for row in rows)
        self._fold(f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>', summary)

    def facts(self, facts: Mapping[str, Any], summary: str = "") -> None:
        """Names and values in two columns."""
        rows = "".join(
            f'<tr><th scope="row">{escape(str(name).replace("_", " "))}</th>{_cell(show(value), False)}</tr>'
            for name, value in facts.items()
        )
        self._fold(f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>', summary)

    def figure(self, figure: Figure, caption: str) -> None:
        """A matplotlib figure, drawn into the page."""
        from vitral.draw.palette import png_bytes

        self._picture(png_bytes(figure, dpi=160), "image/png", caption, "")

    def picture(self, path: Path, caption: str, command: str = "") -> None:
        """A PNG, JPEG or SVG file, copied into the page; anything else becomes a note."""
        signature, kind = SIGNATURES.get(path.suffix.lower(), (b"", ""))
        try:
            content = read_bounded(path, PICTURE_LIMIT)
        except DataError as error:
            self.note(f"{path.name} was left out: {error}")
            return
        if not kind or not content.lstrip().startswith(signature):
            self.note(f"{path.name} was left out: it is no picture")
            return
        self._picture(content, kind, caption, command)

    def _picture(self, content: bytes, kind: str, caption: str, command: str) -> None:
        # An <img> never runs what an SVG may carry.
        source = f"data:{kind};base64,{base64.b64encode(content).decode()}"
        by = f"<br><code>{escape(command)}</code>" if command else ""
        self._parts.append(f'<figure><img src="{source}" alt="{escape(caption)}"><figcaption>{escape(caption)}{by}</figcaption></figure>')

    def _fold(self, html: str, summary: str) -> None:
        self._parts.append(f"<details><summary>{escape(summary)}</summary>{html}</details>" if summary else html)

    def html(self) -> str:
        policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta name="generator" content="Vitral {__version__}">\n'
            f"<title>{escape(self.title)}</title>\n<style>{style()}</style>\n</head>\n<body>\n<main>\n"
            + "\n".join(self._parts)
            + f"\n</main>\n<footer>Made by Vitral {__version__}. This page is one file and needs no network.</footer>\n</body>\n</html>\n"
        )

    def write(self, path: str | Path) -> Path:
        return write_atomic(path, self.html())


def show(value: Any) -> str:
    """A value of a config as a reader wants it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        shown = [show(item) for item in value[:12]]
        return ", ".join(shown) + (f", … ({len(value):,} in all)" if len(value) > 12 else "")
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {show(item)}" for key, item in value.items())
    return str(value)


def style() -> str:
    return Path(__file__).with_name("style.css").read_text(encoding="utf-8")


def percent(value: Any, digits: int = 2) -> str:
    return f"{100 * value:.{digits}f} %" if isinstance(value, int | float) else "–"


def duration(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def scaled(value: Any, units: Sequence[str], step: float = 1000) -> str:
    """`scaled(4.6e9, ["", "k", "M", "G"])` → 4.6 G."""
    if not isinstance(value, int | float):
        return "–"
    index = 0
    while abs(value) >= step and index < len(units) - 1:
        value, index = value / step, index + 1
    return f"{value:.3g} {units[index]}".strip()


def _looks_like_number(value: Any) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return True
    text = str(value)
    return text == "–" or (text[:1] in tuple("0123456789-−+<") and text != "-" and len(text) < 24 and "(" not in text)


def _cell(value: Any, right: bool) -> str:
    kind = value.kind if isinstance(value, Cell) else "number" if right else ""
    return f"<td{_kind(kind)}>{escape(show(value) if not isinstance(value, Cell) else value.text)}</td>"


def _kind(name: str) -> str:
    return f' class="{name}"' if name else ""
