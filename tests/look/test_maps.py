"""From numbers per token or pixel to a map that knows its picture."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import vitral
from vitral.look.maps import heat, joined, patch_edges, to_grid, to_patches


def test_patches_hold_the_sum_of_their_pixels_also_where_they_are_uneven() -> None:
    pixels = np.arange(35.0).reshape(5, 7)
    np.testing.assert_array_equal(to_patches(pixels, (5, 7)), pixels)
    sums = to_patches(pixels, (2, 3))
    assert sums.sum() == pixels.sum()
    np.testing.assert_array_equal(sums[0], [pixels[:2, :2].sum(), pixels[:2, 2:5].sum(), pixels[:2, 5:].sum()])


@pytest.mark.parametrize("side", [28, 32, 64, 96, 224])
def test_a_patch_is_the_same_pixels_for_a_sum_and_for_a_covered_square(side: int) -> None:
    """Rivals of 32, 64 and 96 pixels have 14 patches a side: sums and squares once had borders a pixel apart."""
    edges = patch_edges(side, 14)
    assert edges[0] == 0 and edges[-1] == side and np.diff(edges).min() >= side // 14
    for row in range(14):
        covered = np.zeros((side, side))
        covered[edges[row] : edges[row + 1]] = 1
        inside = to_patches(covered, (14, 14)).any(axis=1)
        assert np.flatnonzero(inside).tolist() == [row]


def test_tokens_before_the_patches_are_left_out(make, images) -> None:
    model = make(registers=2, image_size=(16, 24))
    tape = vitral.watch(model, images(model))
    row = tape.tokens[0, :, 0]
    np.testing.assert_array_equal(to_grid(tape, row), row[3:].view(4, 6).numpy())


def test_a_map_lies_on_its_own_picture_and_joins_its_notes(make) -> None:
    model = make()
    tape = vitral.watch(model, [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")])
    found = heat(tape, 7, np.eye(4), "norms", "one", "", "two", at=1, unit="length")
    assert found.item == 7 and found.original is not None and found.original.getpixel((0, 0)) == (0, 0, 255)
    assert (found.note, found.unit) == ("one; two", "length")
    assert joined("", "") == ""
