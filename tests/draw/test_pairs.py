"""Pairs side by side."""

from __future__ import annotations

import pytest
from PIL import Image

from vitral.base.errors import UsageError
from vitral.draw.pairs import pair_sheet


def test_each_pair_stands_beside_each_other() -> None:
    pairs = [(Image.new("RGB", (30, 20), (20 * k, 0, 0)), Image.new("RGB", (30, 20), (0, 20 * k, 0))) for k in range(3)]
    captions = [(f"left {k}", f"right {k}") for k in range(3)]
    figure = pair_sheet(pairs, captions, title="alike")
    shown = [one for one in figure.axes if one.get_visible()]
    assert [one.get_title() for one in shown] == [word for caption in captions for word in caption]
    tops = [round(one.get_position().y0, 3) for one in shown]
    assert tops[0] == tops[1] and tops[2] == tops[3] and tops[4] == tops[5], "a pair is never torn apart"
    with pytest.raises(UsageError, match="captions"):
        pair_sheet(pairs[:1], [])
