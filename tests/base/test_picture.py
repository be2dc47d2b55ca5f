from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitral.base.picture import Box

numbers = st.floats(-1000, 1000)
sizes = st.integers(1, 500)


def test_corners() -> None:
    box = Box(10, 20, 110, 70)
    assert (box.width, box.height) == (100, 50)
    assert box.to_original(0, 0, (224, 112)) == (10, 20)
    assert box.to_original(112, 224, (224, 112)) == (110, 70)
    assert box.to_original(56, 112, (224, 112)) == (60, 45)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(left=numbers, top=numbers, width=st.floats(1, 1000), height=st.floats(1, 1000), x=numbers, y=numbers, rows=sizes, columns=sizes)
def test_there_and_back(left: float, top: float, width: float, height: float, x: float, y: float, rows: int, columns: int) -> None:
    box = Box(left, top, left + width, top + height)
    assert box.to_input(*box.to_original(x, y, (rows, columns)), (rows, columns)) == pytest.approx((x, y), abs=1e-5)
