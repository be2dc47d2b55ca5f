from __future__ import annotations

import numpy as np
import pytest

import vitral
from vitral.draw.lens import lens_figure


def test_lines_and_patches_are_labelled() -> None:
    shares = np.random.default_rng(0).dirichlet(np.ones(6), 5)
    patches = np.random.default_rng(1).dirichlet(np.ones(6), (5, 3, 4))
    figure = lens_figure(shares, patches, list("abcdef"), 2, title="lens")
    figure.canvas.draw()
    texts = [axes.get_title() for part in figure.subfigs for axes in part.axes]
    assert any("embedding: patches called" in text for text in texts) and any("block 3" in text for text in texts)
    labels = figure.subfigs[0].axes[0].get_legend_handles_labels()[1]
    assert labels[0] == "c" and len(labels) == 5


def test_other_shapes_are_refused() -> None:
    with pytest.raises(vitral.VitralError, match="shapes"):
        lens_figure(np.zeros((3, 2)), np.zeros((2, 2, 2, 2)), "ab", 0)


def test_a_small_probability_among_many_classes_is_not_black() -> None:
    patches = np.full((2, 2, 2, 1000), 1e-3)
    patches[0, 0, 0, 7], patches[1, 0, 0, 7] = 0.02, 0.4
    figure = lens_figure(np.full((2, 1000), 1e-3), patches, [str(number) for number in range(1000)], 7)
    early = figure.subfigs[1].axes[0].images[0]
    assert early.norm(0.02) > 0.4 and early.norm(1e-3) == 0
    assert "chance, 0.001" in figure.subfigs[1].axes[-1].get_ylabel()
