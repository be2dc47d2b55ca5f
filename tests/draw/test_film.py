from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import vitral
from vitral.draw import film
from vitral.draw.film import PARTS as TABLE
from vitral.draw.film import Film, _frame_figure, film_frame, film_sheet

draw = np.random.default_rng(0)
PARTS = {
    "attention": draw.random((3, 2, 4, 4, 4)),
    "classes": draw.random((3, 2, 4, 4)),
    "lens": draw.random((3, 2, 5)),
    "positions": draw.random((3, 4, 4, 4, 4)) * 2 - 1,
    "filters": draw.normal(size=(3, 8, 2, 2)),
    "distance": draw.random((3, 4, 2)),
}
REEL = Film(
    [0, 1, 50],
    PARTS,
    [Image.new("L", (8, 8))] * 2,
    ["four", "six"],
    0.8,
    (np.array([10, 50]), np.array([40.0, 90.0])),
    "validation %",
    "digits",
)


def tiles(reel: Film, part: str) -> list[np.ndarray]:
    """What the sheet shows of one part, moment by moment."""
    alone = Film(reel.steps, {part: reel.parts[part]}, reel.images)
    return [np.asarray(image.get_array(), int) for axes in film_sheet(alone).axes for image in axes.images[:1]][: len(reel.steps)]


def test_every_frame_has_its_panels_in_the_same_places(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = _frame_figure(REEL, 0), _frame_figure(REEL, 2)
    assert len(first.axes) == len(TABLE) + 1
    assert [axes.get_position().bounds for axes in first.axes] == [axes.get_position().bounds for axes in last.axes]
    assert [axes.get_ylim() for axes in first.axes] == [axes.get_ylim() for axes in last.axes]
    assert "step 50 of 50" in [text.get_text() for text in last.texts]
    monkeypatch.setattr(film, "DPI", 30)
    assert film_frame(REEL, 0).size == film_frame(REEL, 1).size and film_frame(REEL, 0) != film_frame(REEL, 1)


def test_a_model_without_classes_has_fewer_panels() -> None:
    parts = {name: PARTS[name] for name in ("attention", "filters", "distance")}
    reel = Film([0, 9], {name: values[:2] for name, values in parts.items()}, [Image.new("L", (8, 8))])
    assert len(_frame_figure(reel, 1).axes) == 4
    dark, light = (Film(reel.steps, reel.parts, [Image.new("L", (8, 8), grey)] * 2) for grey in (0, 255))
    assert tiles(light, "attention")[0].mean() > tiles(dark, "attention")[0].mean() + 50, (
        "attention lies over the picture, which nothing else shows"
    )
    with pytest.raises(vitral.VitralError, match="frame 2 of 2"):
        _frame_figure(reel, 2)


def test_the_sheet_has_a_row_for_each_part() -> None:
    figure = film_sheet(REEL, "digits")
    assert [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()].__len__() == len(TABLE)
    assert [axes.get_title() for axes in figure.axes[:3]] == ["step 0", "step 1", "step 50"]


def test_a_map_has_one_scale_from_start_to_end() -> None:
    """Each frame was stretched to its own range: attention before the first step looked as sure as after the last."""
    attention = np.full((2, 1, 1, 4, 4), 1 / 16)
    attention[0, 0, 0, 0, 0] += 0.004
    attention[1, 0, 0] = 0.01
    attention[1, 0, 0, 2, 2] = 0.85
    classes = np.stack([0.001 * np.eye(4)[None], np.eye(4)[None]])  # its amounts cannot be compared, and the sheet says so
    reel = Film([0, 9], {"attention": attention, "classes": classes}, [Image.new("L", (8, 8))])
    early, late = (tile.sum(axis=2).max() for tile in tiles(reel, "attention"))
    assert early < late / 2
    assert np.array_equal(*tiles(reel, "classes"))
    even = Film([0, 1], {"attention": np.full((2, 1, 1, 4, 4), 1 / 16)}, [])
    assert tiles(even, "attention")[1].sum(axis=2).max() < 400, "nearly even stays dark"


def test_the_sheet_says_what_its_colours_and_rows_are() -> None:
    figure = film_sheet(REEL, "digits")
    assert "class: each map in its own scale" in figure.get_supxlabel() and "lens: pictures down, blocks across" in figure.get_supxlabel()
    units = {axes.get_ylabel() for parent in figure.axes for axes in parent.child_axes}
    assert {"share of attention", "cosine", "pixels", "probability"} <= units
