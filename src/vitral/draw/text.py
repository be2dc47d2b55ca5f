"""Texts of figures: wrapped, shortened, and in fonts that have their letters.

Letters that matplotlib's own font lacks (Japanese, Hindi …) come from a font of this machine; where none has them, a line says so.
Names of classes, files and folders may be in any script, and a name that became boxes would be lost without a word.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from vitral.base.progress import say
from vitral.base.text import clean, columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

_OWN = "DejaVu Sans"
"""What every figure is set in; matplotlib brings it along."""
_FORMULA = r"\mathdefault"
"""In the numbers of a logarithmic scale: the only formulas in our figures."""
_NO_LETTERS = ("Last Resort", "Adobe Blank")
"""Fonts that have a sign for everything: a box."""
_PREFERRED = (
    "Noto Sans CJK JP",
    "Noto Sans JP",
    "IPAexGothic",
    "IPAGothic",
    "Hiragino Sans",
    "Yu Gothic",
    "Meiryo",
    "MS Gothic",
    "Noto Sans",
)
"""Tried first, because they were drawn for reading, and with Japanese forms of the signs that Chinese shares."""


def set_fallback_fonts(figure: Figure) -> None:
    """Give every text of a figure the fonts that have its letters."""
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter

    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            ticks = axis.get_major_formatter()
            if isinstance(ticks, FuncFormatter) and not isinstance(ticks.func, _Clean):  # names: it sets them anew at each drawing
                ticks.func = _Clean(ticks.func)
    for text in figure.findobj(Text):
        dress_text(text)  # type: ignore[arg-type]


class _Clean:
    """What a formatter writes, without signs that no font has and that some stop a drawing."""

    def __init__(self, form: Callable[..., str]) -> None:
        self.form = form

    def __call__(self, *arguments: Any) -> str:
        return clean(self.form(*arguments))


def dress_text(text: Text) -> None:
    if text.get_text() and _FORMULA not in text.get_text():
        text.set_text(clean(text.get_text()))
        text.set_parse_math(False)  # a name with two dollar signs is no formula
    unusual = "".join(sorted({sign for sign in text.get_text() if sign > "\xff" and sign.isprintable()}))
    if not unusual:
        return
    families, missing = _families_for(unusual)
    if missing:
        _warn(missing)
    if families or missing:
        text.set_fontfamily([_OWN, *families, *_boxes()])


@functools.cache
def _families_for(signs: str) -> tuple[tuple[str, ...], str]:
    """Families that have those of the signs that our own font lacks, and the signs that no font here has."""
    from matplotlib.font_manager import FontProperties, fontManager

    left = set(signs) - _signs_of(fontManager.findfont(FontProperties(family=_OWN)))
    families: list[str] = []
    for family, path in _candidates() if left else ():
        if here := left & _signs_of(path):
            families.append(family)
            left -= here
        if not left:
            break
    return tuple(families), "".join(sorted(left))


def _candidates() -> Iterable[tuple[str, str]]:
    """(family, file) of every upright font: the preferred ones, then those matplotlib knows, then those added since it last looked."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    def upright() -> list[tuple[str, str]]:
        entries = [entry for entry in fontManager.ttflist if entry.style == "normal" and not entry.name.startswith((_OWN, *_NO_LETTERS))]
        entries.sort(key=lambda entry: (entry.name not in _PREFERRED, _PREFERRED.index(entry.name) if entry.name in _PREFERRED else 0))
        return [(entry.name, entry.fname) for entry in entries]

    first = upright()
    yield from first
    for path in sorted(set(findSystemFonts()) - {entry.fname for entry in fontManager.ttflist}):
        try:
            fontManager.addfont(path)
        except (OSError, RuntimeError, ValueError):  # FreeType's word for a file that is no font
            continue
    yield from (one for one in upright() if one not in first)


@functools.cache
def _signs_of(path: str) -> frozenset[str]:
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()


@functools.cache
def _boxes() -> tuple[str, ...]:
    """The font of boxes that newer versions of matplotlib bring along: with it, they do not warn of every single sign."""
    from matplotlib.font_manager import fontManager

    return tuple(sorted({entry.name for entry in fontManager.ttflist if entry.name.startswith(_NO_LETTERS[0])}))


@functools.cache
def _warn(missing: str) -> None:
    """Once for each set of signs."""
    shown = missing if len(missing) <= 12 else missing[:12] + "…"
    say(f"note: no font here has {shown}: figures show boxes in their place. Install one that has, such as Noto Sans CJK (fonts-noto-cjk)")


def shorten(text: str, length: int = 28) -> str:
    """`text` on one line and at most `length` letters long."""
    line = " ".join(text.split())
    if columns(line) <= length:
        return line
    while columns(line) > length - 1:
        line = line[:-1]
    return line.rstrip() + "…"


def wrap(text: str, inches: float, most: int = 3) -> str:
    """At most three lines that fit the width, at about 15 letters an inch."""
    length = max(8, round(inches * 15))
    lines = break_lines(" ".join(text.split()), length)
    if len(lines) > most:
        lines = [*lines[: most - 1], shorten(" ".join(lines[most - 1 :]), length)]
    return "\n".join(lines)


def break_lines(text: str, length: int) -> list[str]:
    """Lines of at most `length` letters: between words, and inside one that is longer, or where a script has no spaces."""
    lines, line = [], ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        while columns(joined) > length:
            if line and columns(word) <= length:  # the word goes to the next line as it is
                joined, cut = word, line
            else:
                end = next(end for end in range(len(joined), 0, -1) if columns(joined[:end]) <= length or end == 1)
                cut, joined = joined[:end], joined[end:]
            lines.append(cut.rstrip())
            line, word = "", joined
        line = joined
    return [*lines, line] if line else lines
