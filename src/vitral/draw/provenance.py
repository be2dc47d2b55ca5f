"""A figure is never alone: beside the picture stand its numbers (.npz) and where it came from (.json)."""

from __future__ import annotations

import io
import platform
import shlex
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from vitral.base.errors import UsageError, one_of
from vitral.base.files import write_atomic, write_json
from vitral.base.text import clean
from vitral.base.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200
FORMATS = ("png", "svg", "pdf")
# The same figure gives the same file: no dates, no random ids. These two settings exist only globally, hence the lock.
SETTINGS: Any = {"svg.hashsalt": "vitral", "pdf.fonttype": 42}
_settings_lock = threading.Lock()


def save_figure(
    figure: Figure | Image.Image,
    path_stem: str | Path,
    numbers: dict[str, Any],
    provenance: dict[str, Any],
    caption: str = "",
    formats: Sequence[str] = ("png", "svg"),
) -> list[Path]:
    """Write STEM.png, STEM.svg (and .pdf where asked for), STEM.npz with `numbers`, STEM.json with `provenance`; the paths, picture first.

    A PIL picture is written as PNG alone. The JSON is written last: where it stands, the rest is complete.
    """
    stem = Path(path_stem)
    if unknown := next((ending for ending in formats if ending not in FORMATS), None):
        raise one_of("figure format", unknown, FORMATS)
    arrays = {name: np.asarray(value) for name, value in numbers.items()}
    if odd := next((name for name, array in arrays.items() if array.dtype == object), None):
        raise UsageError(f"the numbers {odd!r} of {stem.name} are no regular array", "give each array its own name")
    if isinstance(figure, Image.Image):
        formats = ("png",)
    paths = [write_atomic(_with_ending(stem, ending), render(figure, ending, caption)) for ending in formats]
    if arrays:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        paths.append(write_atomic(_with_ending(stem, "npz"), buffer.getvalue()))
    record = {
        "caption": caption,
        **provenance,
        "files": [path.name for path in paths],
        "numbers": {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()},
        "versions": versions(),
    }
    paths.append(write_json(_with_ending(stem, "json"), record))
    return paths


def render(figure: Figure | Image.Image, ending: str, caption: str = "") -> bytes:
    """A figure as the bytes of a PNG, SVG or PDF file."""
    buffer = io.BytesIO()
    if isinstance(figure, Image.Image):
        figure.save(buffer, "PNG", optimize=True)
        return buffer.getvalue()
    import matplotlib

    by, caption = f"Vitral {__version__}", clean(caption)
    metadata = {
        "png": {"Software": by, "Description": caption},
        "svg": {"Creator": by, "Date": None, "Title": caption or "figure"},
        "pdf": {"Creator": by, "Producer": by, "CreationDate": None, "Title": caption or "figure"},
    }[ending]
    # Level 4 writes a sheet in half the time of the usual 6, in a file 8 % larger.
    options: Any = {"pil_kwargs": {"compress_level": 4}} if ending == "png" else {}
    with _settings_lock, matplotlib.rc_context(SETTINGS):
        figure.savefig(buffer, format=ending, dpi=DPI, metadata=metadata, **options)
    return buffer.getvalue()


def png_bytes(figure: Figure, dpi: int = 120) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def command_line(arguments: Sequence[str] | None = None) -> str:
    """The command that is running, as a user would type it."""
    argv = sys.argv if arguments is None else arguments
    program = Path(argv[0]).name if argv else ""
    return shlex.join(["vitral" if program in ("vitral", "__main__.py") else program or "python", *argv[1:]])


def versions() -> dict[str, str]:
    import matplotlib

    return {"vitral": __version__, "python": platform.python_version(), "numpy": np.__version__, "matplotlib": matplotlib.__version__}


def _with_ending(stem: Path, ending: str) -> Path:
    # Not with_suffix: a stem such as "block.3" keeps its dot.
    return stem.parent / f"{stem.name}.{ending}"
