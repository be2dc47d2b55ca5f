"""The page's own files: read once, served from memory, or joined into one script for an exported page."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from vitral.base.errors import FailedError

FOLDER = Path(__file__).parent / "static"
KINDS = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

STYLES = ("base", "page", "story", "views")
"""Sheets of static/style, in the order of the cascade; together they are style.css."""

_IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}\s+from\s+)?"(\.\.?/[\w./-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export\s+(?=(?:async\s+)?(?:function|class|const|let)\b)", re.MULTILINE)
_TOP_NAME = re.compile(r"^(?:export\s+)?(?:async\s+)?(?:function\*?|class|const|let|var)\s+([A-Za-z_$][\w$]*)", re.MULTILINE)


def assets() -> dict[str, tuple[bytes, str]]:
    """Path below static/ → (content, content type). The page has one style sheet, style.css, made of the sheets in static/style."""
    paths = sorted(path for path in FOLDER.rglob("*") if path.suffix in (".html", ".js"))
    files = {path.relative_to(FOLDER).as_posix(): (path.read_bytes(), KINDS[path.suffix]) for path in paths}
    sheets = [(FOLDER / "style" / f"{name}.css").read_bytes() for name in STYLES]
    return files | {"style.css": (b"\n".join(sheets), KINDS[".css"])}


def bundle() -> str:
    """All modules that main.js needs, joined into one: imports and exports taken out, what is needed first.

    Kept simple by three rules that are checked here: modules import by `import { a, b } from "../core/c.js"` without renaming, export only
    declarations, and no two modules declare the same top-level name.
    """
    texts = {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.js")}
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise FailedError(
                f"static modules import each other in a circle: {' → '.join((*above, name))}", "move what they share into a third"
            )
        if name in order:
            return
        for _, needed in _IMPORT.findall(texts[name]):
            visit(posixpath.normpath(posixpath.join(posixpath.dirname(name), needed)), (*above, name))
        order.append(name)

    visit("main.js", ())
    owners: dict[str, str] = {}
    parts = []
    for name in order:
        for declared in _TOP_NAME.findall(texts[name]):
            if declared in owners:
                raise FailedError(f"{declared!r} is declared in {owners[declared]} and {name}", "rename one of them")
            owners[declared] = name
        body = _EXPORT.sub("", _IMPORT.sub("", texts[name]))
        if left := re.search(r"^(import|export)\b.*", body, re.MULTILINE):
            raise FailedError(
                f"{name}: {left.group(0)!r} cannot be joined", 'write import { a } from "./b.js" and export on declarations only'
            )
        parts.append(f"// {name}\n{body}")
    return "\n".join(parts)
