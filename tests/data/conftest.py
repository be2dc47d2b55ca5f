"""Pictures that the tests make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """Two classes of differently sized colour pictures: 12 cats, 6 dogs."""
    draw = np.random.default_rng(0)
    for name, count, tint in (("cat", 12, 60), ("dog", 6, 190)):
        folder = tmp_path / "pictures" / name
        folder.mkdir(parents=True)
        for number in range(count):
            height, width = draw.integers(70, 110, 2)
            pixels = np.clip(draw.normal(tint, 30, (height, width, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:02d}.png")
    return tmp_path / "pictures"
