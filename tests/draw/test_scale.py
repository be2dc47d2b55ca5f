"""What a map's colours stand for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from vitral.draw.overlay import lay_over
from vitral.draw.scale import NEUTRAL, Scale
from vitral.draw.style import new_figure, style_image


@pytest.mark.parametrize(
    ("scale", "written"),
    [
        (Scale((0.0, 0.031), "share of attention"), ["0", "0.031"]),
        (Scale((-0.5, 0.5), signed=True, cut=True), ["−0.5", "0", "0.5"]),
        (Scale((15.93, 16.21), "pixels"), ["15.9", "16.2"]),
        (Scale((2e-5, 4.14e-4)), ["2·10⁻⁵", "4.1·10⁻⁴"]),
    ],
)
def test_a_bar_says_its_ends(whole: Callable, scale: Scale, written: list[str]) -> None:
    figure, axes = new_figure(3, 2)
    style_image(axes[0, 0]).imshow(np.eye(3))
    scale.bar(figure, axes[0, 0])
    whole(figure)
    (bar,) = axes[0, 0].child_axes
    assert [label.get_text() for label in bar.get_yticklabels()] == written
    assert bar.get_ylabel() == scale.unit and bar.get_ylim() == scale.limits


def test_a_flat_map_has_a_word_in_place_of_a_bar() -> None:
    figure, axes = new_figure(3, 2)
    Scale((0.2, 0.2)).bar(figure, axes[0, 0])
    assert [text.get_text() for text in axes[0, 0].texts] == ["0.2 everywhere"] and not axes[0, 0].child_axes


@pytest.mark.parametrize("signed", [False, True])
def test_its_colours_are_those_of_the_overlay(signed: bool) -> None:
    """As they lie over a grey photograph, at the same alpha."""
    grid = np.linspace(-1 if signed else 0, 1, 5)[None]
    grey = Image.new("RGB", (500, 500), (int(NEUTRAL),) * 3)
    over = np.asarray(lay_over(grey, grid, alpha=0.6, mode="patches", signed=signed), dtype=int)[250, 50::100]
    bar = Scale((grid.min(), grid.max()), signed=signed, alpha=0.6)._colour_map()
    assert np.abs(bar(np.linspace(0, 1, 5), bytes=True)[:, :3].astype(int) - over).max() <= 2
