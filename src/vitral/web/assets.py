"""The page's own files: read once, served from memory, or joined into one script for an exported page."""

from __future__ import annotations

import re
from pathlib import Path

from vitral.base.errors import FailedError

FOLDER = Path(__file__).parent / "static"
KINDS = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}\s+from\s+)?"\./([\w-]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export\s+(?=(?:async\s+)?(?:function|class|const|let)\b)", re.MULTILINE)
TOP_NAME = re.compile(r"^(?:export\s+)?(?:async\s+)?(?:function\*?|class|const|let|var)\s+([A-Za-z_$][\w$]*)", re.MULTILINE)


def assets() -> dict[str, tuple[bytes, str]]:
    """Name → (content, content type). The page has one style sheet: style.css with the sheets of its parts after it."""
    found = {path.name: (path.read_bytes(), KINDS[path.suffix]) for path in sorted(FOLDER.iterdir()) if path.suffix in KINDS}
    parts = [found.pop(name)[0] for name in list(found) if name.endswith(".css") and name != "style.css"]
    content, kind = found["style.css"]
    return found | {"style.css": (b"\n".join([content, *parts]), kind)}


def bundle() -> str:
    """All modules that main.js needs, joined into one: imports and exports taken out, what is needed first.

    Kept simple by three rules that are checked here: modules import by `import { a, b } from "./c.js"` without renaming, export only
    declarations, and no two modules declare the same top-level name.
    """
    texts = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.js")}
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise FailedError(
                f"static modules import each other in a circle: {' → '.join((*above, name))}", "move what they share into a third"
            )
        if name in order:
            return
        for _, needed in IMPORT.findall(texts[name]):
            visit(needed, (*above, name))
        order.append(name)

    visit("main.js", ())
    owners: dict[str, str] = {}
    parts = []
    for name in order:
        for declared in TOP_NAME.findall(texts[name]):
            if declared in owners:
                raise FailedError(f"{declared!r} is declared in {owners[declared]} and {name}", "rename one of them")
            owners[declared] = name
        body = EXPORT.sub("", IMPORT.sub("", texts[name]))
        if left := re.search(r"^(import|export)\b.*", body, re.MULTILINE):
            raise FailedError(
                f"{name}: {left.group(0)!r} cannot be joined", 'write import { a } from "./b.js" and export on declarations only'
            )
        parts.append(f"// {name}\n{body}")
    return "\n".join(parts)
