from __future__ import annotations

import numpy as np
import pytest

import vitral
from vitral.draw.audit import _framed, example_figure, levels_figure, score_figure

VERDICTS = {"relevance": "use", "rollout": "do not use", "random": "reference"}


def test_scores_levels_and_examples_are_labelled() -> None:
    tests = {"removal": dict.fromkeys(VERDICTS, (0.2, 0.1, 0.3)), "planted patch": {"rollout": (0.4, 0.3, 0.5)}}
    figure = score_figure(tests, VERDICTS, {"removal": 0.0})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["removal", "planted patch"]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == list(VERDICTS)
    lines = levels_figure({"rollout": [1.0, 0.9, 0.8, 0.7], "occlusion": [np.nan, np.nan, np.nan, 0.1]}, ["a", "b", "c", "d"])
    assert [text.get_text() for text in lines.axes[0].get_xticklabels()] == ["a", "b", "c", "d"]
    inside = np.zeros((4, 4), bool)
    inside[1, 2] = True
    sheet = example_figure(np.zeros((16, 16, 3), np.uint8), {"rollout": np.random.default_rng(0).random((4, 4))}, VERDICTS, "x", inside)
    assert [axes.get_title() for axes in sheet.axes][:2] == ["the picture", "rollout (do not use)"]
    with pytest.raises(vitral.VitralError, match="tests"):
        score_figure({}, VERDICTS, {})


def test_a_frame_is_drawn_around_what_is_meant() -> None:
    from PIL import Image

    blank, inside = Image.new("RGB", (40, 40)), np.zeros((4, 4), bool)
    assert _framed(blank, inside) is blank
    inside[1, 2] = True
    pixels = np.asarray(_framed(blank, inside)).any(axis=2)
    assert pixels[10, 20] and pixels[19, 29] and not pixels[5, 5] and not pixels[15, 25]
