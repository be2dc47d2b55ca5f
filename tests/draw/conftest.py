"""A figure must be whole, and look as it did: golden pictures, drawn from fixed numbers with the font that matplotlib brings along."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image, ImageFilter

GOLDEN = Path(__file__).parent / "golden"
DPI = 96
WINDOW = 6
"""Radius in pixels of the means that are compared: they forgive letters half a pixel beside their place, and no missing word."""
TOLERANCE = 15.0
"""Most that such a mean may differ by, of 255."""


class Golden:
    """`golden(figure, "name")`: does it look as golden/name.png does? With GOLDEN=write in the environment that file is written anew."""

    tolerance = TOLERANCE

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, figure: Figure | Image.Image, name: str) -> None:
        drawn, path = self.shrunk(figure), GOLDEN / f"{name}.png"
        if os.environ.get("GOLDEN") == "write":
            path.parent.mkdir(exist_ok=True)
            drawn.save(path, optimize=True)
        drawn.save(self.folder / path.name)
        with Image.open(path) as kept:
            far = self.difference(drawn, kept.convert("RGB"))
        assert far <= TOLERANCE, (
            f"{self.folder / path.name} differs from {path} by {far:.0f} of 255 somewhere (matplotlib {matplotlib.__version__}, kept with "
            "3.11): look at both, and run with GOLDEN=write if the new one is right"
        )

    @staticmethod
    def shrunk(figure: Figure | Image.Image) -> Image.Image:
        """As it is kept: small, and smooth enough that the last bit of an edge does not matter."""
        if isinstance(figure, Image.Image):
            return figure.convert("RGB")
        figure.set_dpi(DPI)
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]  # type: ignore[attr-defined]
        return Image.fromarray(np.ascontiguousarray(pixels)).reduce(2)

    def difference(self, one: Figure | Image.Image, other: Figure | Image.Image) -> float:
        """The largest difference of the mean colours around any place; infinite for another size."""
        small = [self.shrunk(figure) for figure in (one, other)]
        if small[0].size != small[1].size:
            return float("inf")
        blurred = [np.asarray(image.filter(ImageFilter.BoxBlur(WINDOW)), dtype=float) for image in small]
        return float(np.abs(blurred[0] - blurred[1]).max())


@pytest.fixture
def golden(tmp_path: Path) -> Golden:
    return Golden(tmp_path)


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
