"""What all methods promise about their first arguments."""

from __future__ import annotations

import numpy as np
import pytest

import vitral
from vitral import look
from vitral.base.errors import UsageError
from vitral.draw.heatmap import Heatmap
from vitral.look.common import outlier_threshold


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


def test_a_patch_is_no_artefact_for_standing_out_among_equals() -> None:
    """Where all norms are alike their spread is nothing: an artefact must also be clearly larger."""
    norms = np.array([[1.0, 1.0, 1.0, 1.0, 1.2], [1.0, 1.0, 1.0, 1.0, 1.6], [1.0, 2.0, 3.0, 4.0, 9.0]])
    assert (norms > outlier_threshold(norms)[:, None]).sum(axis=1).tolist() == [0, 1, 0]


def test_chosen_rows_and_heads_of_a_tape_are_found_by_their_numbers(make, images) -> None:
    model = make()
    whole = vitral.watch(model, images(model))
    part = vitral.watch(model, images(model), rows=[9, 4], heads=[2, 0])
    for token, head in ((9, 2), (4, 0), (4, 2), (9, 0)):
        found, expected = (look.attention(tape, 1, start=token, block=1, head=head) for tape in (part, whole))
        np.testing.assert_allclose(found.grid, expected.grid, atol=1e-12)
