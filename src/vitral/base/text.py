"""Numbers as people write them."""

from __future__ import annotations

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
WRITTEN_OUT = 1e9


def readable(number: float) -> str:
    """`45,000`, `1.5`, and `4.1·10¹⁴` for more digits than anybody counts."""
    if abs(number) < WRITTEN_OUT:
        return f"{number:,.0f}" if number == round(number) or abs(number) >= 1000 else f"{number:g}"
    mantissa, exponent = f"{number:.1e}".split("e")
    factor = mantissa.removesuffix(".0")
    return f"{'' if factor == '1' else factor + '·'}10{str(int(exponent)).translate(RAISED)}"
