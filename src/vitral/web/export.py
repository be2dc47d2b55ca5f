"""The explorer as one file: page, style, script and numbers inside, no server and no network needed.

What a click would ask a server for is computed beforehand: every method for the most probable classes, every head and every block
switched off on its own. The page says so where it matters.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import FailedError
from vitral.base.files import write_atomic
from vitral.base.progress import track
from vitral.look.method import RECORDS
from vitral.web.assets import assets, bundle
from vitral.web.depth import EXPORTED_NUMBERS
from vitral.web.pack import EXPORT_LEVELS, pack, unpack
from vitral.web.session import Session
from vitral.web.surgery import Cut, operate
from vitral.web.trace import compare, methods_of

CLASSES = 3
"""How many of the most probable classes the class-wise methods are computed for."""
COPIES = 16
"""Copies of the picture in one pass while parts are switched off."""
SAFE = bytes.maketrans(b"<&", b",.")
"""Base 85 without the two signs that mean something in HTML."""


def export_page(session: Session, path: str | Path) -> Path:
    """Write the page for all given pictures and models to `path`."""
    return write_atomic(path, render_page(session))


def render_page(session: Session) -> str:
    """The page for all given pictures and models."""
    if not session.given:
        raise FailedError("an exported page needs a picture", "name at least one: vitral explore MODEL IMAGE --export page.html")
    blobs: dict[str, bytes] = {}
    pairs = [(model, entry["picture"]) for entry in session.given for model in range(len(session.models))]
    for model, key in track(pairs, "Computing what the page will show"):
        blobs[f"trace-{model}-{key}"] = session.trace(model, key, EXPORT_LEVELS, level=9)
        if session.models[model].config.is_transformer:
            blobs[f"story-{model}-{key}"] = session.story(model, key, level=9)
        blobs[f"extras-{model}-{key}"] = pack(extras(session, model, key), {}, level=9)
        blobs |= {f"{part}-{model}-{key}": content for part, content in by_depth(session, model, key).items()}
    description = session.description() | {"live": False, "classes": CLASSES}
    blobs["figures"] = pack({"figures": [session.figures(model) for model in range(len(session.models))]}, {}, level=9)
    return page(description, blobs)


def extras(session: Session, model: int, key: str) -> dict[str, Any]:
    """Maps and surgery of one picture in one model."""
    classifier = session.models[model]
    _, sections = unpack(session.trace(model, key, EXPORT_LEVELS, level=9))
    logits = sections["logits"]
    assert isinstance(logits, np.ndarray)
    top = np.argsort(-logits)[:CLASSES].tolist()
    maps = {}
    for method in methods_of(classifier):
        # Occlusion runs the model once a patch: only for the class that was predicted.
        for target in [None] if not RECORDS[method].explains else top[:1] if method == "occlusion" else top:
            maps[f"{method}/{'' if target is None else target}"] = session.map(model, key, method, target)
    operable = classifier.config.is_transformer and logits.size
    return {
        "top": top,
        "maps": maps,
        "surgery": all_cuts(session, model, key) if operable else {},
        "importance": session.importance(model, key) if operable else None,
    }


def by_depth(session: Session, model: int, key: str) -> dict[str, bytes]:
    """One picture at every depth of a model, and at every snapshot of its training where there are some."""
    found = {"features": session.features(model, key, most=EXPORTED_NUMBERS, level=9)}
    if session.models[model].config.is_transformer and session.models[model].config.classes:
        found["depth"] = session.depth(model, key, level=9)
    if session.films[model]:
        found["film"] = session.film(model, key, level=9)
    return found


def all_cuts(session: Session, model: int, key: str) -> dict[str, Any]:
    """Every head off and every block off, one at a time, under the names that the page asks for: h3.1, b5."""
    classifier = session.models[model]
    config = classifier.config
    cuts = {f"h{block}.{head}": Cut(heads=((block, head),)) for block in range(config.depth) for head in range(config.heads)}
    cuts |= {f"b{block}": Cut(blocks=(block,)) for block in range(config.depth)}
    image = session.picture(model, key).tensor.to(next(classifier.parameters()).device)
    whole = operate(classifier, image, [Cut()])
    found: dict[str, Any] = {}
    names = list(cuts)
    for begin in track(range(0, len(names), COPIES), "Switching off heads and blocks"):
        some = names[begin : begin + COPIES]
        outcome = operate(classifier, image, [cuts[name] for name in some])
        for index, name in enumerate(some):
            pair = (whole.logits[0], outcome.logits[index], whole.maps[0], outcome.maps[index])
            found[name] = compare(*pair, outcome.method, None, digits=3, multi_label=classifier.origin.multi_label)
    return found


def page(description: dict[str, Any], blobs: dict[str, bytes], runs: bool = False) -> str:
    """index.html with everything inlined, under a policy that allows these very scripts and no connection; `runs`: and WebAssembly."""
    files = assets()
    style, script = files["style.css"][0].decode(), bundle()
    text = files["index.html"][0].decode()
    compiles = " 'wasm-unsafe-eval'" if runs else ""
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'{compiles}; style-src '{_hash(style)}'; img-src blob: data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    data = [f'<script type="application/json" id="vitral-session">{json.dumps(description).replace("<", chr(92) + "u003c")}</script>']
    data += [
        f'<script type="application/octet-stream" id="{name}" data-bytes="{len(content)}">{_text(content)}</script>'
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


def _text(content: bytes) -> str:
    return base64.b85encode(content, pad=True).translate(SAFE).decode()
