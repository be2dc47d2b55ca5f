from __future__ import annotations

from vitral.base.picture import Box


def test_corners() -> None:
    box = Box(10, 20, 110, 70)
    assert (box.width, box.height) == (100, 50)
    assert box.to_original(0, 0, (224, 112)) == (10, 20)
    assert box.to_original(112, 224, (224, 112)) == (110, 70)
    assert box.to_original(56, 112, (224, 112)) == (60, 45)
