"""The explorer as one file: page, style, script and numbers inside, no server and no network needed.

What a click would ask a server for is computed beforehand: every method for the most probable classes, every head and every block
switched off on its own. The page says so where it matters.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from pathlib import Path
from typing import Any

from vitral.base.errors import FailedError
from vitral.base.files import write_atomic
from vitral.base.progress import track
from vitral.web.answers import ANSWERS, CLASSES, Question
from vitral.web.assets import assets, bundle
from vitral.web.pack import EXPORTED
from vitral.web.session import Session

_SAFE = bytes.maketrans(b"<&", b",.")
"""Base 85 without the two signs that mean something in HTML."""


def export_page(session: Session, path: str | Path) -> Path:
    """Write the page for all given pictures and models to `path`."""
    return write_atomic(path, render_page(session))


def render_page(session: Session) -> str:
    """The page for all given pictures and models."""
    if not session.initial:
        raise FailedError("an exported page needs a picture", "name at least one: vitral explore MODEL IMAGE --export page.html")
    blobs: dict[str, bytes] = {}
    pairs = [(model, entry["picture"]) for entry in session.initial for model in range(len(session.models))]
    for model, key in track(pairs, "Computing what the page will show"):
        for what, entry in ANSWERS.items():
            for options in entry.exported(session, model, key) if entry.fits(session, model) else []:
                blobs[Question(what, model, key, **options).address] = session.answer(what, model, key, packing=EXPORTED, **options)
    blobs |= {f"models/{model}/figures": session.figures(model, EXPORTED) for model in range(len(session.models))}
    return page(session.description() | {"mode": "exported", "classes": CLASSES}, blobs)


def page(description: dict[str, Any], blobs: dict[str, bytes]) -> str:
    """index.html with everything inlined, under a policy that allows these very scripts and no connection.

    A page that runs its model may compile WebAssembly too. A blob's name is the address under which a server would answer.
    """
    files = assets()
    style, script = files["style.css"][0].decode(), bundle()
    text = files["index.html"][0].decode()
    compiles = " 'wasm-unsafe-eval'" if description["mode"] == "in-browser" else ""
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'{compiles}; style-src '{_hash(style)}'; img-src blob: data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    data = [f'<script type="application/json" id="vitral-session">{json.dumps(description).replace("<", chr(92) + "u003c")}</script>']
    data += [
        f'<script type="application/octet-stream" id="{escape(name)}" data-bytes="{len(content)}">{_base85(content)}</script>'
        for name, content in blobs.items()
    ]
    text = _replace(
        text, r'<link rel="stylesheet"[^>]*>', f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>'
    )
    return _replace(text, r'<script type="module"[^>]*></script>', "\n".join([*data, f'<script type="module">{script}</script>']))


def _replace(text: str, pattern: str, new: str) -> str:
    out, count = re.subn(pattern, lambda _: new, text)
    if count != 1:
        raise FailedError(f"index.html has {count} places that match {pattern}", "it needs exactly one")
    return out


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _base85(content: bytes) -> str:
    return base64.b85encode(content, pad=True).translate(_SAFE).decode()
