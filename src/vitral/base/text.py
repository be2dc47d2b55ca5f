"""Numbers, durations, sizes and tables as people write them: the only place that does."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from html import escape

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_WRITTEN_OUT = 1e9
NOTHING = "–"


def clean(text: str) -> str:
    """Nothing but what a terminal shows: escape sequences, control signs and bytes that are no text are spelt out."""
    return text if text.isprintable() else "".join(sign if _harmless(sign) else ascii(sign)[1:-1] for sign in text)


def _harmless(sign: str) -> bool:
    return sign in "\n\t" or sign.isprintable() or unicodedata.category(sign) == "Zs"


def readable(number: float) -> str:
    """`45,000`, `1.5`, and `4.1·10¹⁴` for more digits than anybody counts."""
    if abs(number) < _WRITTEN_OUT:
        return f"{number:,.0f}" if number == round(number) or abs(number) >= 1000 else f"{number:g}"
    mantissa, exponent = f"{number:.1e}".split("e")
    factor = mantissa.removesuffix(".0")
    return f"{'' if factor == '1' else factor + '·'}10{str(int(exponent)).translate(_RAISED)}"


def compact(number: float) -> str:
    """Two digits for the end of a scale: `0.31`, `−12`, `4.1·10⁻⁵`, and nothing but `0` for zero."""
    if not number:
        return "0"
    if 1e-3 <= abs(number) < 1e4:
        return f"{number:.2g}".replace("-", "−") if abs(number) < 100 else f"{number:,.0f}".replace("-", "−")
    mantissa, exponent = f"{number:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}·10{str(int(exponent)).translate(_RAISED)}".replace("-", "−")


def signed(number: float, digits: int = 2) -> str:
    """`+0.42`, `−0.03`, and `0.00` without a sign for what is written as zero."""
    written = f"{number:+.{digits}f}".replace("-", "−")
    return written if float(written[1:]) else written[1:]


def counted(number: int, thing: str) -> str:
    """`1 picture`, `1,200 pictures`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def columns(text: str) -> int:
    """Columns that a text fills where every letter is as wide as the next: East Asian ones fill two, marks upon letters none."""
    return sum(0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def short(number: float | None) -> str:
    """`12`, `1.23 M`, `5 P`: three digits and a letter, for counts."""
    return _scaled(number, ("", "k", "M", "G", "T", "P", "E"), 1000)


def byte_size(count: float | None) -> str:
    """`512 B`, `3 MiB`, `1.5 GiB`."""
    return _scaled(count, ("B", "KiB", "MiB", "GiB", "TiB"), 1024)


def percent(share: float | None, digits: int = 1) -> str:
    """`12.3 %`, also in pages, tables and plots. Without digits: settings, estimates and progress."""
    if share is None:
        return NOTHING
    return "<0.1 %" if digits and 0 < share < 0.001 else f"{100 * share:.{digits}f} %"


def duration(seconds: float | None) -> str:
    """`12 ms`, `3.1 s`, `48 s`, `1 min 01 s`, `1 h 02 min`, `2 d 04 h`."""
    if seconds is None:
        return NOTHING
    if 0 < seconds < 0.0995:
        return f"{seconds * 1000:.2g} ms"
    if seconds < 59.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24:02d} h"


def few(names: Sequence[str], most: int = 3) -> str:
    """`cat, dog, owl …`."""
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")


def table(rows: Sequence[Sequence[str]], header: Sequence[str] = (), align: str = "l", markdown: bool = False) -> str:
    """Aligned columns under an underlined header, or a Markdown table; no newline at the end.

    `align`: `l` or `r` for each column, the last letter for all that follow: `lr` is a name and then numbers.
    """
    lines = [[clean(cell) for cell in row] for row in ([header, *rows] if header else rows)]
    if not lines:
        return ""
    right = [align[min(column, len(align) - 1)] == "r" for column in range(len(lines[0]))]
    if markdown:
        cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
        cells.insert(1, ["---:" if number else "---" for number in right])
        return "\n".join(f"| {' | '.join(line)} |" for line in cells)
    widths = [max(map(columns, column)) for column in zip(*lines, strict=True)]
    if header:
        lines.insert(1, ["─" * width for width in widths])
    return "\n".join("  ".join(map(_filled, line, widths, right)).rstrip() for line in lines)


def _filled(cell: str, width: int, number: bool) -> str:
    space = " " * (width - columns(cell))
    return space + cell if number else cell + space


def html(text: str) -> str:
    """What `table` wrote, and the lines around it, for a notebook: a real table between paragraphs."""
    lines, out = text.splitlines(), []
    ruled = next((number for number, line in enumerate(lines) if (number and set(line) == {" ", "─"}) or set(line) == {"─"}), 0)
    if not ruled:
        return f"<pre>{escape(text)}</pre>"
    spans = [match.span() for match in re.finditer("─+", lines[ruled])]
    last = next((number for number in range(ruled + 1, len(lines)) if not lines[number].strip()), len(lines))

    def row(line: str, tag: str) -> str:
        # The last column goes on to the end of the line.
        signs = [piece for sign in line for piece in [sign, *[""] * (columns(sign) - 1)]]  # one a column
        ends = [end for _, end in spans[:-1]] + [len(signs)]
        cells = ["".join(signs[start:end]).strip() for (start, _), end in zip(spans, ends, strict=True)]
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    out += [f"<p>{escape(line)}</p>" for line in lines[: ruled - 1] if line.strip()]
    out.append(f"<table><thead>{row(lines[ruled - 1], 'th')}</thead><tbody>")
    out += [row(line, "td") for line in lines[ruled + 1 : last]]
    out.append("</tbody></table>")
    return "".join([*out, *(f"<p>{escape(line)}</p>" for line in lines[last:] if line.strip())])


def _scaled(number: float | None, units: Sequence[str], step: int) -> str:
    if number is None:
        return NOTHING
    for unit in units:
        written = f"{number:.3g}" if abs(number) < 999.5 else f"{number:.0f}"
        if abs(float(written)) < step or unit == units[-1]:  # as written: 999,999 is 1 M, not 1000 k
            break
        number /= step
    return f"{written} {unit}".strip()
