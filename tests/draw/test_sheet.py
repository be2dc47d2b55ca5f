"""One page per picture."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.picture import Box
from vitral.draw.heatmap import Heatmap
from vitral.draw.sheet import _SIGNS, COLOURS_END, STARTS, clipped_overlay, inside_sheet


class _Ranking(list):
    logits = (3.0, -1.0)


RANKING = _Ranking([("cat", 0.98), ("dog", 0.02)])


@pytest.mark.parametrize(
    ("side", "signed", "note"), [(14, True, f"{COLOURS_END}; {_SIGNS}"), (14, False, COLOURS_END), (4, True, _SIGNS), (4, False, None)]
)
def test_the_note_says_what_the_colours_mean(whole: Callable, photograph: Image.Image, side: int, signed: bool, note: str | None) -> None:
    grid = np.random.default_rng(0).normal(size=(side, side))
    heats = [Heatmap(grid if signed else np.abs(grid), "occlusion", signed=signed, original=photograph)] * 3
    figure = inside_sheet(photograph, RANKING, heats, ["a", "b", "c"], title="cat")
    whole(figure)
    notes = [part.get_supxlabel() for part in figure.subfigs if part.get_supxlabel()]
    assert notes == ([note] if note else [])


def test_prediction_above_and_every_map_below_with_its_caption(whole: Callable, golden: Callable, photograph: Image.Image) -> None:
    y, x = np.mgrid[:14, :14] / 13
    heats = [
        Heatmap(x * y, "rollout", original=photograph, box=Box(60, 0, 260, 200)),
        Heatmap(x - y, "occlusion", original=photograph, box=Box(60, 0, 260, 200), signed=True),
        Heatmap(1 - x, "attention", original=photograph, box=Box(60, 0, 260, 200)),
    ]
    captions = ["rollout", "occlusion → a class whose name is longer than two lines can hold, by far, and then some more", "attention"]
    figure = inside_sheet(photograph, RANKING, heats, captions, title="cat, 98.0%", columns=2)
    whole(figure)
    golden(figure, "inside_sheet")
    above, below = figure.subfigs
    picture, logits, probabilities = above.axes
    assert picture.images and [label.get_text() for label in logits.get_yticklabels()] == ["cat", "dog"]
    assert [bar.get_width() for bar in logits.patches] == [3.0, -1.0] and [bar.get_width() for bar in probabilities.patches] == [98.0, 2.0]
    assert [axes.get_visible() for axes in below.axes] == [True, True, True, False]
    titles = [axes.get_title() for axes in below.axes]
    assert titles[0] == "rollout" and titles[2] == "attention"
    assert titles[1].split() == captions[1].split(), "over several lines, and whole"
    for axes, heat in zip(below.axes, heats, strict=False):
        image, scale = clipped_overlay(heat)
        assert (axes.images[0].get_array() == np.asarray(image)).all()
        (bar,) = axes.child_axes
        assert bar.get_ylim() == scale.limits, "each map has its own scale"
    assert [tick.get_text() for tick in below.axes[1].child_axes[0].get_yticklabels()] == ["−0.86", "0", "0.86"]


def test_artefacts_do_not_outshine_the_rest() -> None:
    """One huge value: without the cut all other patches would have the darkest colour."""
    grid = np.linspace(0, 1, 196).reshape(14, 14)
    spoilt = grid.copy()
    spoilt[3, 3] = 100
    clear, plain = (np.asarray(clipped_overlay(Heatmap(values, "norms"), "patches")[0], dtype=int) for values in (spoilt, grid))
    assert np.abs(clear - plain).mean() < 8
    few = Heatmap(spoilt[:4, :4], "norms")
    assert (np.asarray(clipped_overlay(few)[0]) == np.asarray(few.overlay())).all(), "a small map shows its whole range"


def test_a_sheet_says_what_the_frame_is(photograph: Image.Image) -> None:
    heat = Heatmap(np.eye(4), "attention", original=photograph, start=(1, 2))
    figure = inside_sheet(None, (), [heat, heat], ["a", "b"])
    assert figure.subfigs[0].get_supxlabel() == STARTS


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="captions"):
        inside_sheet(None, (), [Heatmap(np.eye(3), "rollout")], [])
