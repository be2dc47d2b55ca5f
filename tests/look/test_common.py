"""What all methods promise about their first arguments."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import vitral
from vitral import look
from vitral.base.errors import UsageError
from vitral.draw.heatmap import Heatmap
from vitral.look.common import outlier_threshold
from vitral.look.describe import stems


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
    if name in ("integrated_gradients", "occlusion"):
        with pytest.raises(UsageError, match="treats the pictures of a batch differently"):
            look.METHODS[name](edited, 1)
    else:
        found, untouched, other = look.METHODS[name](edited, 1), look.METHODS[name](plain, 1), look.METHODS[name](edited, 0)
        np.testing.assert_allclose(found.grid, untouched.grid, atol=1e-9)
        assert np.abs(other.grid - look.METHODS[name](plain, 0).grid).max() > 1e-6, "the first one was edited"


def test_numbers_of_numpy_are_numbers(make, images) -> None:
    model = make()
    tape = vitral.watch(model, images(model))
    found = look.attention(tape, block=np.int64(1), head=np.int64(2))
    np.testing.assert_array_equal(found.grid, look.attention(tape, block=1, head=2).grid)
    assert len(vitral.predict(model, images(model), top=np.int64(2))[0]) == 2
    with pytest.raises(UsageError, match="block True does not exist"):
        look.attention(tape, block=True)


def test_a_head_that_reads_class_token_and_mean_starts_from_the_token(make, images) -> None:
    model = make(pool="class+mean")
    tape = vitral.watch(model, images(model))
    assert "mean of the patches, too" in look.attention(tape).note
    np.testing.assert_array_equal(look.attention(tape).grid, look.attention(tape, start=0).grid)


@pytest.mark.parametrize("method", [look.relevance, look.gradcam, look.gradient_rollout])
def test_gradients_are_there_whatever_is_switched_off_around(make, images, method) -> None:
    model = make()
    expected = method(vitral.watch(model, images(model)))
    with torch.no_grad():
        np.testing.assert_array_equal(method(vitral.watch(model, images(model))).grid, expected.grid)
    with torch.inference_mode(), pytest.raises(UsageError, match="inference_mode"):
        look.integrated_gradients(vitral.watch(model, images(model)))


def test_sheets_of_pictures_with_one_name_do_not_meet() -> None:
    pictures = [SimpleNamespace(source=source) for source in ("a/cat-1.png", "a/cat.jpg", "a/cat.png", "b/cat-1.png", "a/dog.png")]
    names = stems(pictures)  # type: ignore[arg-type]
    assert len(set(names)) == 5 and names[4] == "dog"
    assert stems(pictures[:3])[0] == "cat-1", "a name of its own is kept"  # type: ignore[arg-type]
