"""Pictures that are nearly the same, side by side: what likeness found, for a person to judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL import Image

from vitral.base.errors import UsageError
from vitral.draw.tiles import picture_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pair = tuple[Image.Image, Image.Image]


def pair_sheet(pairs: Sequence[Pair], captions: Sequence[tuple[str, str]], *, title: str = "", across: int = 2) -> Figure:
    """Each pair beside each other, `across` of them in a row; captions are of the left and the right picture."""
    if not pairs or len(captions) != len(pairs):
        raise UsageError(f"{len(pairs)} pairs and {len(captions)} captions", "give at least one pair, and captions for each")
    images = [image for pair in pairs for image in pair]
    words = [word for caption in captions for word in caption]
    return picture_sheet(images, words, columns=2 * min(across, len(pairs)), title=title, width=1.5)
