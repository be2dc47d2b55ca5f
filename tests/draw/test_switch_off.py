from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from vitral.base.errors import UsageError
from vitral.draw.matrices import ablation_figure

HEADS = np.array([[-0.4, 0.1, 0.0], [0.02, -0.01, -0.2]])
PARTS = np.array([[-0.5, -0.1, -0.9], [0.3, -0.2, -0.6]])


def test_each_half_has_its_numbers_and_its_scale(whole: Callable, golden: Callable) -> None:
    figure = ablation_figure(HEADS, PARTS, ("attention", "MLP", "both"), "dome: probability 0.912 with everything on")
    whole(figure)
    heads, parts, *_ = figure.axes
    assert (heads.images[0].get_array() == HEADS).all() and (parts.images[0].get_array() == PARTS).all()
    assert heads.images[0].get_clim() == (-0.4, 0.4) and parts.images[0].get_clim() == (-0.9, 0.9)
    assert [text.get_text() for text in heads.texts][:2] == ["−0.40", "+0.10"]
    assert [label.get_text() for label in parts.get_xticklabels()] == ["attention", "MLP", "both"]
    golden(figure, "ablation_figure")


def test_many_heads_are_not_written_out(whole: Callable) -> None:
    figure = ablation_figure(np.zeros((40, 32)), np.zeros((40, 3)), ("attention", "MLP", "both"))
    whole(figure)
    assert not figure.axes[0].texts
    assert figure.axes[0].images[0].get_clim() == (-1, 1), "nothing changed: zero is still in the middle"


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="blocks, heads"):
        ablation_figure(HEADS, PARTS[:1], ("attention", "MLP", "both"))
