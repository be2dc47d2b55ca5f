from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import UsageError
from vitral.draw.charts import bar_chart, head_scatter, prediction_chart, reliability_figure


def widths(axes) -> list[float]:
    return [bar.get_width() for bar in axes.patches]


def test_prediction(whole: Callable, golden: Callable, photograph: Image.Image) -> None:
    names = ["dome", "church", "a class with a very, very long name, also known otherwise"]
    figure = prediction_chart(names, [9.0, 4.5, -1.5], [0.9, 0.08, 0.02], image=photograph, title="cat.jpg")
    whole(figure)
    golden(figure, "prediction_chart")
    picture, logits, probabilities = figure.axes
    assert picture.images
    assert widths(logits) == [9.0, 4.5, -1.5]
    assert widths(probabilities) == pytest.approx([90, 8, 2])
    assert [text.get_text() for text in logits.texts] == ["9.00", "4.50", "−1.50"]
    assert [text.get_text() for text in probabilities.texts] == ["90.0", "8.0", "2.0"]
    bottom, top = logits.get_ylim()
    assert bottom > top, "the best stands on top"
    assert len(prediction_chart(["x"], [1.0], [1.0]).axes) == 2


def test_bars_with_intervals(whole: Callable, golden: Callable) -> None:
    figure = bar_chart(["ViT", "CNN"], [0.77, 0.89], low=[0.75, 0.88], high=[0.8, 0.9], label="accuracy", title="CIFAR-10", form="{:.2f}")
    whole(figure)
    golden(figure, "bar_chart")
    axes = figure.axes[0]
    segments = axes.collections[0].get_segments()
    assert [(round(s[0][0], 6), round(s[1][0], 6)) for s in segments] == [(0.75, 0.8), (0.88, 0.9)]
    assert axes.get_xlim()[0] == 0, "bars start at zero"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ViT", "CNN"]


def test_heads_by_depth(whole: Callable, golden: Callable) -> None:
    values = np.random.default_rng(0).random((12, 3)) * 100
    figure = head_scatter(values, label="distance (pixels)", title="Heads", largest=117.0, largest_label="uniform")
    whole(figure)
    golden(figure, "head_scatter")
    axes = figure.axes[0]
    dots = axes.collections[0].get_offsets()
    assert np.allclose(np.sort(dots[:, 1]), np.sort(values.ravel()))
    assert (np.abs(dots[:, 0] - np.round(dots[:, 0])) < 0.3).all()
    assert np.allclose(axes.lines[0].get_ydata(), values.mean(axis=1))
    assert axes.lines[-1].get_ydata()[0] == 117.0


def test_reliability(whole: Callable, golden: Callable) -> None:
    confidence, accuracy = np.array([0.1, 0.4, 0.6, 0.9]), np.array([np.nan, 0.3, 0.5, 0.8])
    figure = reliability_figure(confidence, accuracy, np.array([0, 10, 30, 60]), error=0.1, title="digits")
    whole(figure)
    golden(figure, "reliability_figure")
    top, bottom = figure.axes
    assert [bar.get_height() for bar in top.patches] == [0.3, 0.5, 0.8], "empty bins are left out"
    assert [bar.get_height() for bar in bottom.patches] == [0, 10, 30, 60]
    assert figure.get_suptitle() == "digits – calibration error 10.0 %"


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="2 and 1"):
        bar_chart(["a", "b"], [1.0])
    with pytest.raises(UsageError, match="at least"):
        prediction_chart([], [], [])
    with pytest.raises(UsageError, match="blocks, heads"):
        head_scatter(np.zeros(3), label="x")
