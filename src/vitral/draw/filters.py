"""Filters of two models beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from vitral.draw.sheet import picture_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 7


def filters_beside(groups: Sequence[tuple[np.ndarray, Sequence[str], str]], title: str = "") -> Figure:
    """Each group: filters (n, h, w[, 3]), captions, a name for its rows. Zero is mid-grey, one scale per filter."""
    images: list[Image.Image] = []
    captions: list[str] = []
    labels: list[str] = []
    for filters, texts, name in groups:
        reach = np.maximum(np.abs(filters).max(axis=tuple(range(1, filters.ndim)), keepdims=True), 1e-30)
        tones = (127.5 + 127.5 * filters / reach).round().astype(np.uint8)
        rows = -(-len(tones) // COLUMNS)
        blank = Image.new("RGB", (4, 4), "white")
        missing = rows * COLUMNS - len(tones)
        images += [Image.fromarray(tone) for tone in tones] + [blank] * missing
        captions += [*texts, *[""] * (rows * COLUMNS - len(texts))]
        labels += [name, *[""] * (rows - 1)]
    return picture_sheet(images, captions, columns=COLUMNS, title=title, row_labels=labels, cell=0.95)
