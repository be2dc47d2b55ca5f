"""What all methods promise about their first arguments."""

from __future__ import annotations

import numpy as np
import pytest

import vitral
from vitral import look
from vitral.base.errors import UsageError
from vitral.draw.heatmap import Heatmap


@pytest.mark.parametrize("name", look.METHODS)
def test_pictures_count_from_the_end_too_whatever_the_tape_kept(make, images, name) -> None:
    """A tape that kept too little is watched again with one picture: numbers still mean the pictures of the first tape."""
    model = make()
    tape = vitral.watch(model, images(model), keep=["logits"])
    for item in (-1, -2):
        found, expected = (look.METHODS[name](tape, number) for number in (item, item + 2))
        assert isinstance(found, Heatmap) and found.item == expected.item == item + 2
        np.testing.assert_array_equal(found.grid, expected.grid)
    with pytest.raises(UsageError, match="picture -3 does not exist"):
        look.METHODS[name](tape, -3)
