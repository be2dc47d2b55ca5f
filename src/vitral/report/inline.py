"""Pictures inside the page: matplotlib's figures and the files of a figures folder, as data addresses.

An <img> never runs what an SVG may carry.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vitral.base.errors import DataError
from vitral.base.files import read_bounded
from vitral.draw.provenance import png_bytes
from vitral.report.page import read_object

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image

_LIMIT = 12 * 2**20
"""Bytes of one picture."""
_MOST = 120
"""Figures of one page."""
_SIGNATURES = {".png": (b"\x89PNG\r\n\x1a\n", "image/png"), ".jpg": (b"\xff\xd8\xff", "image/jpeg"), ".svg": (b"<", "image/svg+xml")}
"""What a file of each kind begins with, and its media type; of one figure in several kinds, the first is shown."""


@dataclass(frozen=True)
class Illustration:
    source: str
    """The picture itself, as a data: address."""
    caption: str
    command: str = ""
    """What drew it."""
    link: str = ""
    """Where a click leads: a file, relative to the page."""
    beside: tuple[Illustration, ...] = ()
    """Maps over the same picture; pictures that are like it."""


Gallery = list[tuple[str, list[Illustration]]]
"""Headings with the pictures under them."""


def of_figure(figure: Figure, caption: str) -> Illustration:
    return Illustration(_address(png_bytes(figure, dpi=160), "image/png"), caption)


def of_image(image: Image.Image, caption: str, link: str = "", beside: Sequence[Illustration] = ()) -> Illustration:
    content = io.BytesIO()
    image.save(content, "WEBP", quality=80)
    return Illustration(_address(content.getvalue(), "image/webp"), caption, link=link, beside=tuple(beside))


def of_folder(folder: Path, hint: str, without: Sequence[str] = ()) -> list[Illustration | str]:
    """All figures under `folder` with the captions and commands of the JSON files beside them; a text says what is not shown.

    `without`: figures that the page has already, by their names. Of two alike, in picture and caption, the first is shown.
    """
    files = [path for path in _figure_files(folder) if path.stem not in without]
    if not files:
        return [f"there are no figures yet: {hint}"]
    pictures = map(_of_file, reversed(files[:_MOST]))
    shown = {(one.source, one.caption) if isinstance(one, Illustration) else one: one for one in pictures}
    left = len(files) - _MOST
    return [*reversed(shown.values()), *([f"{left} more figures were left out; they are in {folder}"] if left > 0 else [])]


def of_frames(folder: Path) -> list[Illustration]:
    """The frames of a film, in order; none where there is no film."""
    out = []
    for path in sorted(folder.glob("step-*.webp"))[:_MOST]:
        if path.is_symlink() or not (content := read_bounded(path, _LIMIT)).startswith(b"RIFF"):
            continue
        out.append(Illustration(_address(content, "image/webp"), f"step {int(path.stem.removeprefix('step-')):,}"))
    return out


def _of_file(path: Path) -> Illustration | str:
    """A PNG, JPEG or SVG file; anything else becomes a text."""
    signature, kind = _SIGNATURES.get(path.suffix.lower(), (b"", ""))
    try:
        content = read_bounded(path, _LIMIT)
    except DataError as error:
        return f"{path.name} was left out: {error}"
    if not kind or not content.lstrip().startswith(signature):
        return f"{path.name} was left out: it is no picture"
    record = read_object(path.with_suffix(".json"), [])
    words = path.stem.replace("_", " ").replace("-", " ")
    caption = " – ".join(str(part) for part in (record.get("caption") or words, record.get("note")) if part)
    return Illustration(_address(content, kind), caption, str(record.get("command") or ""))


def _figure_files(folder: Path) -> list[Path]:
    """One file per figure, PNG before SVG; links out of the folder that it lies in are not followed."""
    first: dict[Path, Path] = {}
    inside = folder.parent.resolve()
    for ending in _SIGNATURES:
        for path in sorted(folder.rglob(f"*{ending}")):
            if path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(inside):
                first.setdefault(path.with_suffix(""), path)
    return [first[stem] for stem in sorted(first)]


def _address(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
