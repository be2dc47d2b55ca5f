"""A token's row over the picture, and the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral import look


def test_rows_are_those_of_the_reference(any_model, images, forward) -> None:
    batch = images(any_model)
    tape = vitral.watch(any_model, batch)
    prefix, grid = any_model.config.prefix, any_model.config.grid
    maps, _ = forward(any_model, batch[1])
    weights = maps[2].detach().numpy()  # (heads, T, T)
    rows = weights[:, 0] if any_model.config.pool == "class" else weights[:, prefix:].mean(axis=1)
    np.testing.assert_allclose(look.attention(tape, 1).grid, rows.mean(axis=0)[prefix:].reshape(grid), atol=1e-9)
    np.testing.assert_allclose(look.attention(tape, 1, block=2, head=1).grid, rows[1, prefix:].reshape(grid), atol=1e-9)
    corner = look.attention(tape, 1, start=(0, 1), block=-1, head=2)
    np.testing.assert_allclose(corner.grid, weights[2, prefix + 1, prefix:].reshape(grid), atol=1e-9)
    assert (corner.block, corner.head, corner.method) == (2, 2, "attention")


def test_a_tape_with_few_rows_and_heads_is_enough(make, images) -> None:
    model = make()
    batch = images(model)
    whole = vitral.watch(model, batch)
    lean = vitral.watch(model, batch, rows="class", heads=[2], blocks=[1])
    np.testing.assert_allclose(look.attention(lean, 1, block=1, head=2).grid, look.attention(whole, 1, block=1, head=2).grid, atol=1e-12)
    # What it does not hold is watched again.
    np.testing.assert_allclose(look.attention(lean, 1, block=0, head=0).grid, look.attention(whole, 1, block=0, head=0).grid, atol=1e-12)
    np.testing.assert_allclose(look.attention(lean, 1, block=1).grid, look.attention(whole, 1, block=1).grid, atol=1e-12)


def test_matrix_and_its_normalised_view(make, images) -> None:
    model = make(registers=1)
    tape = vitral.watch(model, images(model))
    matrix = look.attention_matrix(tape, 1, block=0, head=1)
    with_graph = look.attention_matrix(vitral.watch(tape.model, tape.images, gradients=True), 1, block=0, head=1)
    np.testing.assert_array_equal(with_graph.values, matrix.values)
    np.testing.assert_allclose(matrix.values, tape.attention(0)[1, 1].numpy())
    np.testing.assert_allclose(matrix.values.sum(axis=1), 1)
    view = look.attention_matrix(tape, 1, block=0, head=1, normalised=True).values
    np.testing.assert_allclose(view.mean(axis=1), 0, atol=1e-9)
    np.testing.assert_allclose(view.std(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(view.argsort(axis=1), matrix.values.argsort(axis=1))
    axes = matrix.draw().axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), matrix.values)
    assert axes.figure.get_suptitle() == matrix.title and axes.lines[0].get_ydata()[0] == matrix.prefix - 0.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"block": 3}, "block 3 does not exist: this model has blocks 0 to 2"),
        ({"head": 3}, "head 3 does not exist: this model has heads 0 to 2"),
    ],
)
def test_unknown_block_and_head(make, images, options, words) -> None:
    model = make()
    with pytest.raises(vitral.VitralError, match=words):
        look.attention(vitral.watch(model, images(model)), **options)


def test_maps_know_the_original_and_where_the_model_looked(make) -> None:
    from PIL import Image

    model = make().float()
    original = Image.new("RGB", (60, 30), "red")
    heat = look.attention(vitral.watch(model, original))
    assert heat.original is not None and heat.original.size == (60, 30)
    assert heat.box is not None and (heat.box.left, heat.box.right) == (15, 45)
    assert heat.overlay().width == 2 * heat.overlay().height
    again = look.relevance(vitral.watch(model, [original, original]), 1)  # watched again: still the same picture
    assert again.box == heat.box
    assert torch.is_grad_enabled()
