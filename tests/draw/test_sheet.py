"""One page per picture."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from vitral.draw.heatmap import Heatmap
from vitral.draw.sheet import COLOURS_END, SIGNS, inside_sheet


@pytest.mark.parametrize(
    ("side", "signed", "note"), [(14, True, f"{COLOURS_END}; {SIGNS}"), (14, False, COLOURS_END), (4, True, SIGNS), (4, False, None)]
)
def test_the_note_says_what_the_colours_mean(whole: Callable, photograph: Image.Image, side: int, signed: bool, note: str | None) -> None:
    grid = np.random.default_rng(0).normal(size=(side, side))
    heats = [Heatmap(grid if signed else np.abs(grid), "occlusion", signed=signed, original=photograph)] * 3
    figure = inside_sheet(photograph, ["cat", "dog"], [3.0, -1.0], [0.98, 0.02], heats, ["a", "b", "c"], title="cat")
    whole(figure)
    notes = [part.get_supxlabel() for part in figure.subfigs if part.get_supxlabel()]
    assert notes == ([note] if note else [])
