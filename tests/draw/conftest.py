from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image


@pytest.fixture
def whole() -> Callable[[Figure], np.ndarray]:
    """Draws a figure, checks that nothing of it is cut off and that it is not blank; gives its pixels."""

    def check(figure: Figure) -> np.ndarray:
        figure.canvas.draw()
        ink = figure.get_tightbbox()
        width, height = figure.get_size_inches()
        slack = 0.02
        assert ink.x0 >= -slack
        assert ink.y0 >= -slack
        assert ink.x1 <= width + slack
        assert ink.y1 <= height + slack
        pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]  # type: ignore[attr-defined]
        assert (pixels < 250).any()
        assert (pixels[0, 0] == 255).all(), "backgrounds are light"
        return pixels

    return check


@pytest.fixture
def photograph() -> Image.Image:
    """A picture with no two equal pixels near each other, 320 × 200."""
    y, x = np.mgrid[:200, :320]
    return Image.fromarray(np.stack([x * 255 // 319, y * 255 // 199, (x + y) % 256], axis=-1).astype(np.uint8))
