"""What a tape did not keep is watched again: the same pictures, the same edits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

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
    with pytest.raises(UsageError, match="picture -3"):
        look.METHODS[name](tape, -3)


def test_chosen_rows_and_heads_of_a_tape_are_found_by_their_numbers(make, images) -> None:
    model = make()
    whole = vitral.watch(model, images(model))
    part = vitral.watch(model, images(model), rows=[9, 4], heads=[2, 0])
    for token, head in ((9, 2), (4, 0), (4, 2), (9, 0)):
        found, expected = (look.attention(tape, 1, start=token, block=1, head=head) for tape in (part, whole))
        np.testing.assert_allclose(found.grid, expected.grid, atol=1e-12)


def first_off(value: torch.Tensor, name: str) -> torch.Tensor:
    """An edit for the first picture of a batch alone."""
    value = value.clone()
    value[0] = 0
    return value


@pytest.mark.parametrize("name", look.METHODS)
def test_an_edit_of_one_picture_stays_with_it(make, images, name) -> None:
    """The second picture was not edited: its map is that of a plain pass, or it is said that there can be none."""
    model = make()
    batch = images(model)
    edited = vitral.watch(model, batch, keep=["logits"], edits={"blocks.1.attention.output": first_off})
    plain = vitral.watch(model, batch, keep=["logits"])
    if name in ("integrated_gradients", "occlusion", "rise"):
        with pytest.raises(UsageError, match="differently"):
            look.METHODS[name](edited, 1)
    else:
        found, untouched, other = look.METHODS[name](edited, 1), look.METHODS[name](plain, 1), look.METHODS[name](edited, 0)
        np.testing.assert_allclose(found.grid, untouched.grid, atol=1e-9)
        assert np.abs(other.grid - look.METHODS[name](plain, 0).grid).max() > 1e-6, "the first one was edited"


@pytest.mark.parametrize("method", [look.relevance, look.gradcam, look.gradient_rollout])
def test_gradients_are_there_whatever_is_switched_off_around(make, images, method) -> None:
    model = make()
    expected = method(vitral.watch(model, images(model)))
    with torch.no_grad():
        np.testing.assert_array_equal(method(vitral.watch(model, images(model))).grid, expected.grid)
    with torch.inference_mode(), pytest.raises(UsageError, match="inference_mode"):
        look.integrated_gradients(vitral.watch(model, images(model)))
