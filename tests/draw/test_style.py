from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from vitral.draw import style, text
from vitral.draw.matrices import matrix_figure


def luminance(colours: np.ndarray) -> np.ndarray:
    return colours.astype(float) @ np.array([0.2126, 0.7152, 0.0722])


def test_more_is_brighter_also_in_grey_print() -> None:
    tones = luminance(style.paint(np.linspace(0, 1, 64)))
    assert (np.diff(tones) > 0).all()
    assert tones[-1] - tones[0] > 200


def test_signed_colours_are_light_at_zero_and_mirror_each_other() -> None:
    tones = luminance(style.paint(np.linspace(-1, 1, 65), signed=True))
    assert tones.argmax() in (31, 32, 33)
    assert abs(tones[0] - tones[-1]) < 25


def test_limits_are_kept_and_nothing_wraps() -> None:
    values = np.array([-5.0, 0.0, 1.0, 7.0])
    colours = style.paint(values, limits=(0, 1))
    assert (colours[0] == colours[1]).all()
    assert (colours[2] == colours[3]).all()
    assert len(np.unique(style.paint(np.full((3, 3), 0.7)).reshape(-1, 3), axis=0)) == 1


def test_lines_differ_by_colour_and_by_marker() -> None:
    pairs = [(style.series_colour(index), style.series_marker(index)) for index in range(14)]
    assert len(set(pairs)) == 14
    assert len({colour for colour, _ in pairs[:7]}) == len({marker for _, marker in pairs[:7]}) == 7


def test_shorten() -> None:
    assert text.shorten("bell cote,\n bell cot") == "bell cote, bell cot"
    assert text.shorten("a" * 50, 10) == "a" * 9 + "…"


def test_a_figure_shows_itself_in_a_notebook() -> None:
    figure, _ = style.new_figure(1, 1)
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_no_global_state_and_no_pyplot() -> None:
    code = """
import sys, numpy as np
from vitral.draw.heatmap import Heatmap
assert "matplotlib" not in sys.modules, "numbers alone need no matplotlib"
import matplotlib
settings = lambda: {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}  # asking for it loads pyplot
before = settings()
from vitral.draw import charts, curves, matrices, tiles
Heatmap(np.eye(3), "a")._repr_png_(), charts.bar_chart(["a"], [1.0])
assert settings() == before
assert not {"matplotlib.pyplot", "torch"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("title", ["short: cat, 40.7 %", "a very long name of a picture " * 6 + ": cat, 40.7 %"])
def test_a_title_is_never_cut(whole: Callable, title: str) -> None:
    figure, axes = style.new_figure(3, 2)
    axes[0, 0].plot([0, 1])
    style.add_title(figure, title)
    whole(figure)
    assert figure.get_suptitle().replace("\n", " ") == title
    assert figure.get_size_inches()[1] == pytest.approx(2 + 0.19 * figure.get_suptitle().count("\n")), "the figure makes room"


def test_lines_are_broken_between_words_inside_long_ones_and_in_scripts_without_spaces() -> None:
    assert text.break_lines("one two three", 7) == ["one two", "three"]
    assert text.break_lines("IMG_20260102_1234 x", 8) == ["IMG_2026", "0102_123", "4 x"]
    assert text.break_lines("日本語の名前", 8) == ["日本語の", "名前"], "each fills two columns"
    assert text.wrap("word " * 100, 1).count("\n") == 2 and text.wrap("word " * 100, 1).endswith("…")


def test_per_cents_end_at_a_hundred() -> None:
    _, axes = style.new_figure(3, 2)
    style.percent_axis(axes[0, 0], 125, [0, 50, 100])
    assert axes[0, 0].spines["bottom"].get_bounds() == (0, 100)
    assert axes[0, 0].get_xlim() == (0, 125)


def broken(kind: str) -> Figure:
    """A figure with one mistake, such as a change of the code could make."""
    values = np.outer(np.linspace(0, 1, 6), np.linspace(1, 0.2, 8))
    labels = {"rows": "row of the patch", "columns": "column", "label": "similarity", "title": "Class token"}
    if kind == "missing title":
        labels["title"] = " "
    elif kind == "missing label":
        labels["columns"] = " "
    elif kind == "swapped labels":
        labels["rows"], labels["columns"] = labels["columns"], labels["rows"]
    elif kind == "turned over":
        values = values[::-1]
    elif kind == "swapped axes":
        values = values.T
    figure = matrix_figure(values, **labels)
    if kind == "another colour map":
        figure.axes[0].images[0].set_cmap("magma")
    elif kind == "missing scale":
        figure.axes[1].set_yticks([])
    return figure


MISTAKES = ["missing title", "missing label", "swapped labels", "turned over", "another colour map", "missing scale", "swapped axes"]


@pytest.mark.parametrize("kind", MISTAKES)
def test_the_golden_pictures_tell_a_mistake(golden: Any, kind: str) -> None:
    """The comparison itself: every mistake is far beyond the tolerance."""
    assert golden.difference(broken("none"), broken("none")) == 0
    assert golden.difference(broken("none"), broken(kind)) > 1.4 * golden.tolerance


def test_the_golden_pictures_forgive_how_letters_are_drawn(golden: Any) -> None:
    """Another version of matplotlib or FreeType draws the same letters with other pixels: here with hard edges."""
    right = golden.shrunk(broken("none"))
    with matplotlib.rc_context({"text.antialiased": False}):
        assert 0 < golden.difference(right, broken("none")) < golden.tolerance
