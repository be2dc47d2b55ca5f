from __future__ import annotations

import numpy as np
import torch

import vitral
from vitral.look import references


def test_they_know_the_picture_at_most(make, images) -> None:
    model, batch = make(), images(make(), 2)
    tape = vitral.watch(model, batch)
    again = vitral.watch(make(seed=3), batch)  # other weights
    for method in (references.random, references.edges, references.centre):
        np.testing.assert_array_equal(method(tape, 1).grid, method(again, 1).grid)
        assert method(tape).grid.shape == (4, 4)
    assert not np.array_equal(references.random(tape, 0).grid, references.random(tape, 1).grid)
    np.testing.assert_array_equal(references.centre(tape, 0).grid, references.centre(tape, 1).grid)


def test_edges_are_where_brightness_changes(make) -> None:
    image = torch.zeros(1, 3, 16, 16, dtype=torch.float64)
    image[:, :, :, 10:] = 1.0  # an edge inside the third column of patches
    grid = references.edges(vitral.watch(make(), image)).grid
    assert (grid[:, 2] > 0).all() and not grid[:, [0, 1, 3]].any()


def test_the_centre_is_in_the_middle(make, images) -> None:
    grid = references.centre(vitral.watch(make(), images(make()))).grid
    np.testing.assert_allclose(grid, grid[::-1, ::-1])
    assert grid[1, 1] == grid.max() and grid[0, 0] == grid.min()
