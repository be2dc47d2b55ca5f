"""Names in any script: drawn where a font has the letters, told where none has."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.font_manager import fontManager

from vitral.base.text import clean
from vitral.draw import text as fonts
from vitral.draw.matrices import confusion_figure
from vitral.draw.provenance import render
from vitral.draw.style import add_title, new_figure, style_axes

FLOWER = "花"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Answers are remembered, and so are the fonts that a test added."""
    kept = list(fontManager.ttflist)
    for cached in (fonts._families_for, fonts._warn):
        cached.cache_clear()
    yield
    fontManager.ttflist[:] = kept
    for cached in (fonts._families_for, fonts._warn):
        cached.cache_clear()


def make_font(path: Path, signs: str) -> None:
    """A font whose every letter is a filled square."""
    builder = FontBuilder(1000, isTTF=True)
    names = [".notdef", *(f"u{ord(sign):x}" for sign in signs)]
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(sign): f"u{ord(sign):x}" for sign in signs})
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 800), (800, 800), (800, 0)):
        pen.lineTo(corner)
    pen.closePath()
    square = pen.glyph()
    builder.setupGlyf(dict.fromkeys(names, square))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Test Gothic", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)


def ink(title: str) -> int:
    figure, axes = new_figure(3, 1)
    style_axes(axes[0, 0])
    add_title(figure, title)
    figure.canvas.draw()
    return int((np.asarray(figure.canvas.buffer_rgba())[..., :3] < 128).all(axis=2).sum())  # type: ignore[attr-defined]


def test_letters_come_from_a_font_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: [str(tmp_path / "test.ttf")])
    monkeypatch.setattr(fontManager, "ttflist", [entry for entry in fontManager.ttflist if entry.name.startswith((fonts._OWN, "Last"))])
    make_font(tmp_path / "test.ttf", FLOWER)
    assert fonts._families_for(FLOWER) == (("Test Gothic",), "")
    assert ink("rose " + FLOWER * 4) - ink("rose ") > 300, "four squares of ink"
    assert capsys.readouterr().err == ""


def test_what_no_font_has_is_said_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", list)
    monkeypatch.setattr(fontManager, "ttflist", [entry for entry in fontManager.ttflist if entry.name.startswith((fonts._OWN, "Last"))])
    for _ in range(3):
        ink(f"{FLOWER} rose")
    told = capsys.readouterr().err
    assert told.count("no font here has 花") == 1 and "fonts-noto-cjk" in told


def test_our_own_font_needs_no_help() -> None:
    assert fonts._families_for("−→×·⁻é") == ((), "")


def test_a_broken_font_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: [str(tmp_path / "broken.ttf")])
    monkeypatch.setattr(fontManager, "ttflist", [entry for entry in fontManager.ttflist if entry.name.startswith((fonts._OWN, "Last"))])
    assert fonts._families_for(FLOWER) == ((), FLOWER)


@pytest.mark.parametrize("name", ["caf\udce9", "\x1b[31mred", r"$\frac{$", "two\x00"])
def test_a_name_that_no_font_can_show_is_spelt_out_wherever_it_stands(name: str) -> None:
    """Half a letter stopped the drawing, and so did a formula with a mistake in it."""
    figure = confusion_figure(np.array([[3, 1], [0, 4]]), (name, "dog"))
    figure.suptitle(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ending in ("png", "svg"):
            assert render(figure, ending, caption=name)
        figure.canvas.draw()
    assert any(text.get_text() == clean(name) for text in figure.axes[0].get_yticklabels())
