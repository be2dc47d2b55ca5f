"""The explorer in a notebook: the exported page in a frame of its own. No server, no network, and nothing of the notebook in reach."""

from __future__ import annotations

import io
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.files import write_atomic
from vitral.base.picture import Picture
from vitral.base.text import byte_size
from vitral.data.images.preprocess import open_picture
from vitral.model.classifier import Classifier
from vitral.web.export import render_page
from vitral.web.first_images import fitting_images, named_images
from vitral.web.session import Session
from vitral.weights.load import load

_HEIGHT = 860


class Explorer:
    """What `vitral.explore` returns: it shows itself as the last line of a cell."""

    def __init__(self, page: str, height: int = _HEIGHT) -> None:
        self.page = page
        self.height = height

    def save(self, path: str | Path) -> Path:
        """The same page as a file that opens anywhere."""
        return write_atomic(path, self.page)

    def __repr__(self) -> str:
        return f"Explorer({byte_size(len(self.page))}: shows itself in a notebook; .save('page.html') writes it)"

    def _repr_html_(self) -> str:
        """The frame may run its own script and offer files, no more: to the notebook it is a stranger."""
        return (
            f'<iframe srcdoc="{escape(self.page)}" sandbox="allow-scripts allow-downloads" title="Vitral explorer" '
            f'width="100%" height="{self.height}" style="border: 0; border-radius: 12px"></iframe>'
        )


def explore(
    model: Classifier | str | Path, pictures: Any = (), *, compare: Classifier | str | Path | None = None, height: int = _HEIGHT
) -> Explorer:
    """The explorer for a notebook: `vitral.explore(model, "cat.jpg")` as the last line of a cell.

    `model`, `compare`: a model, or anything that `vitral.load` takes. `pictures`: one or several paths, PIL images, arrays or opened
    pictures; none: some of the run's own, or two photographs.
    """
    models: dict[str, Classifier] = {}
    for source in [model] if compare is None else [model, compare]:
        name = str(source) if isinstance(source, str | Path) else source.origin.source.value or source.config.family
        models[name if name not in models else f"{name} (again)"] = load(source) if isinstance(source, str | Path) else source
    session = Session(models)
    many = isinstance(pictures, Iterable) and not isinstance(pictures, str | bytes | np.ndarray)
    chosen: list[Any] = list(pictures) if many else [pictures]
    contents = [_content(picture, index, session) for index, picture in enumerate(chosen)]
    for content, name in contents or fitting_images(next(iter(models))):
        session.add_initial(content, name)
    return Explorer(render_page(session), height)


def _content(picture: Any, index: int, session: Session) -> tuple[bytes, str]:
    """A picture's bytes, as the server would be sent them, and its name."""
    if isinstance(picture, str | Path):
        return named_images((str(picture),), session.limits)[0]
    original = picture.original if isinstance(picture, Picture) else open_picture(picture, session.models[0]).original
    out = io.BytesIO()
    original.save(out, "PNG", compress_level=1)
    return out.getvalue(), f"picture {index + 1}"
