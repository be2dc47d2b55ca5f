"""Positions, features, colours."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from vitral import look
from vitral.look.similarity import principal


def test_rows_against_columns_on_a_hand_made_table(make) -> None:
    model = make(image_size=(16, 24), patch_size=(4, 4))  # 4 × 6
    with torch.no_grad():
        model.positions.table.zero_()
        for row in range(4):
            model.positions.table[0, 1 + row * 6 : 1 + (row + 1) * 6, row] = 2.0  # one direction per row, the same along it
        model.positions.table[0, 0, 3] = 1.0
    found = look.position_similarity(model)
    assert found.values.shape == (4, 6, 4, 6)
    assert (found.same_row, found.same_column, found.elsewhere) == (1.0, 0.0, 0.0)
    assert found.by_distance.shape == (2, 3)
    assert found.class_token is not None
    np.testing.assert_array_equal(found.class_token[3], 1)
    np.testing.assert_array_equal(found.class_token[:3], 0)
    assert "more alike" in found.finding
    page = np.ma.filled(found.draw().axes[0].images[0].get_array(), np.nan)
    np.testing.assert_array_equal(page[:4, :6], found.values[0, 0])
    rows, columns = found.draw_distances().axes[0].lines
    assert (rows.get_label(), rows.get_ydata().tolist()) == ("in one row", [1, 1, 1])
    assert (columns.get_label(), columns.get_ydata().tolist()) == ("in one column", [0, 0, 0])


def test_fixed_positions_favour_neither_rows_nor_columns(make) -> None:
    found = look.position_similarity(make(positions="sincos"))
    assert found.same_row == pytest.approx(found.same_column, abs=1e-6)
    assert "as alike" in found.finding
    with pytest.raises(vitral.VitralError, match="rotary positions"):
        look.position_similarity(make(positions="rotary", width=48))


def test_feature_similarity(make, images) -> None:
    model = make()
    tape = vitral.watch(model, images(model), keep=["blocks.1.output"])
    tokens = tape["blocks.1.output"][1].numpy()
    heat = look.similarity(tape, 1, start=(2, 1), block=1)
    own = tokens[1 + 2 * 4 + 1]
    expected = [token @ own / np.sqrt((token @ token) * (own @ own)) for token in tokens[1:]]
    np.testing.assert_allclose(heat.grid.ravel(), expected, atol=1e-12)
    assert heat.grid[2, 1] == pytest.approx(1)
    cnn = vitral.create("cnn", image_size=32)
    tape = vitral.watch(cnn, torch.randn(1, 3, 32, 32))
    assert look.similarity(tape, start=(0, 3)).grid[0, 3] == pytest.approx(1)
    with pytest.raises(vitral.VitralError, match=r"\(9, 9\)"):
        look.similarity(tape, start=(9, 9))


def test_principal_components_have_one_sign_and_all_the_variance() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 4)) * [5, 3, 1, 0.1]
    scores, components, explained = principal(rows, 4)
    assert explained.sum() == pytest.approx(1)
    assert (np.diff(explained) < 0).all()
    np.testing.assert_allclose(scores @ components, rows - rows.mean(axis=0), atol=1e-9)
    assert (components[np.arange(4), np.abs(components).argmax(axis=1)] > 0).all()
    np.testing.assert_allclose(principal(-rows, 4)[1], components, atol=1e-9)


def test_colours_leave_artefacts_out(make, images) -> None:
    model = make()
    batch = images(model)

    def spoil(value, name):
        value = value.clone()
        value[:, 1 + 5] *= 100
        return value

    plain = look.token_colours(vitral.watch(model, batch))
    spoilt = look.token_colours(vitral.watch(model, batch, keep=["blocks.2.output"], edits={"blocks.2.output": spoil}))
    assert (plain.artefacts, spoilt.artefacts) == (0, 1)
    np.testing.assert_array_equal(spoilt.colours[1, 1], 0.5)
    assert spoilt.explained.sum() == pytest.approx(plain.explained.sum(), abs=0.2)
    assert plain.colours.min() >= 0 and plain.colours.max() <= 1
    (axes,) = spoilt.draw().axes
    assert axes.images[0].get_array()[96, 96].tolist() == [128, 128, 128] and axes.get_title().endswith("artefact in grey")


def test_colours_stand_beside_the_part_that_the_model_saw(make) -> None:
    model = make()
    picture = Image.new("RGB", (40, 20), "blue")
    picture.paste("red", (10, 0, 30, 20))
    seen, colours = look.token_colours(vitral.watch(model, picture)).draw().axes
    pixels = seen.images[0].get_array()
    assert pixels.shape == (20, 20, 3) and (pixels == [255, 0, 0]).all() and seen.get_title() == "picture"
    assert colours.get_title().startswith("block 2: ")
