"""Filters as tiles: of one model, or of two, one under the other. Zero is mid-grey, one scale per filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from vitral.base.errors import UsageError
from vitral.draw.style import INK, TICK_SIZE, add_title, empty_figure, style_image, used_axes
from vitral.draw.tiles import picture_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 7
_WIDTH = 0.85


def filter_tiles(filters: np.ndarray, *, captions: Sequence[str] = (), title: str = "", columns: int = _COLUMNS) -> Figure:
    """Filters (n, h, w, 3) or (n, h, w), signed."""
    return picture_sheet(_filter_images(filters), captions, columns=columns, title=title, width=_WIDTH)


def filters_beside(groups: Sequence[tuple[np.ndarray, Sequence[str], str]]) -> Figure:
    """Each group: filters, captions, a title."""
    rows = [-(-len(filters) // _COLUMNS) for filters, _, _ in groups]
    heights = [count * (_WIDTH + (0.2 if len(captions) else 0)) + 0.35 for count, (_, captions, _) in zip(rows, groups, strict=True)]
    figure = empty_figure(_WIDTH * _COLUMNS + 0.1, sum(heights), w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)
    parts = figure.subfigures(len(groups), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, count, (filters, captions, title) in zip(parts, rows, groups, strict=True):
        add_title(part, title)
        images = _filter_images(filters)
        for index, one in enumerate(used_axes(part.subplots(count, _COLUMNS, squeeze=False), len(images))):
            style_image(one).imshow(images[index], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            if len(captions):
                one.set_title(captions[index], fontsize=TICK_SIZE, color=INK, pad=2.5)
    return figure


def _filter_images(filters: np.ndarray) -> list[Image.Image]:
    if filters.ndim not in (3, 4) or not len(filters):
        raise UsageError(f"filters of shape {filters.shape}", "give (n, h, w) or (n, h, w, 3)")
    return [Image.fromarray(grey) for grey in weights_to_grey(filters)]


def weights_to_grey(filters: np.ndarray, leading: int = 1) -> np.ndarray:
    """Signed weights as bytes of the same shape: zero is mid-grey, one scale per filter; the first `leading` axes number the filters."""
    reach = np.abs(filters).max(axis=tuple(range(leading, filters.ndim)), keepdims=True)
    return (127.5 + 127.5 * filters / np.where(reach > 0, reach, 1)).round().astype(np.uint8)
