"""Letters that matplotlib's own font lacks (Japanese, Hindi …) come from a font of this machine; where none has them, a line says so.

Names of classes, files and folders may be in any script, and a name that became boxes would be lost without a word.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from vitral.base.progress import say
from vitral.base.text import clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

OWN = "DejaVu Sans"
"""What every figure is set in; matplotlib brings it along."""
FORMULA = r"\mathdefault"
"""In the numbers of a logarithmic scale: the only formulas in our figures."""
NO_LETTERS = ("Last Resort", "Adobe Blank")
"""Fonts that have a sign for everything: a box."""
PREFERRED = (
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
    """What a formatter says, without signs that no font has and that some stop a drawing."""

    def __init__(self, say: Callable[..., str]) -> None:
        self.say = say

    def __call__(self, *arguments: Any) -> str:
        return clean(self.say(*arguments))


def dress_text(text: Text) -> None:
    if text.get_text() and FORMULA not in text.get_text():
        text.set_text(clean(text.get_text()))
        text.set_parse_math(False)  # a name with two dollar signs is no formula
    unusual = "".join(sorted({sign for sign in text.get_text() if sign > "\xff" and sign.isprintable()}))
    if not unusual:
        return
    found, missing = families_for(unusual)
    if missing:
        _tell(missing)
    if found or missing:
        text.set_fontfamily([OWN, *found, *_boxes()])


@functools.cache
def families_for(signs: str) -> tuple[tuple[str, ...], str]:
    """Families that have those of the signs that our own font lacks, and the signs that no font here has."""
    from matplotlib.font_manager import FontProperties, fontManager

    left = set(signs) - _signs_of(fontManager.findfont(FontProperties(family=OWN)))
    found: list[str] = []
    for family, path in _candidates() if left else ():
        if here := left & _signs_of(path):
            found.append(family)
            left -= here
        if not left:
            break
    return tuple(found), "".join(sorted(left))


def _candidates() -> Iterable[tuple[str, str]]:
    """(family, file) of every upright font: the preferred ones, then those matplotlib knows, then those added since it last looked."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    def upright() -> list[tuple[str, str]]:
        entries = [entry for entry in fontManager.ttflist if entry.style == "normal" and not entry.name.startswith((OWN, *NO_LETTERS))]
        entries.sort(key=lambda entry: (entry.name not in PREFERRED, PREFERRED.index(entry.name) if entry.name in PREFERRED else 0))
        return [(entry.name, entry.fname) for entry in entries]

    known = upright()
    yield from known
    for path in sorted(set(findSystemFonts()) - {entry.fname for entry in fontManager.ttflist}):
        try:
            fontManager.addfont(path)
        except (OSError, RuntimeError, ValueError):  # FreeType's word for a file that is no font
            continue
    yield from (one for one in upright() if one not in known)


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

    return tuple(sorted({entry.name for entry in fontManager.ttflist if entry.name.startswith(NO_LETTERS[0])}))


@functools.cache
def _tell(missing: str) -> None:
    """Once for each set of signs."""
    shown = missing if len(missing) <= 12 else missing[:12] + "…"
    say(f"note: no font here has {shown}: figures show boxes in their place. Install one that has, such as Noto Sans CJK (fonts-noto-cjk)")
