from __future__ import annotations

import pytest

from vitral.base.text import readable


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "0"),
        (10.0, "10"),
        (2.5, "2.5"),
        (45_000.4, "45,000"),
        (999_999_999, "999,999,999"),
        (1e9, "10⁹"),
        (5e14, "5·10¹⁴"),
        (4.134e14, "4.1·10¹⁴"),
        (-2e20, "-2·10²⁰"),
    ],
)
def test_numbers_as_people_write_them(number: float, written: str) -> None:
    assert readable(number) == written
