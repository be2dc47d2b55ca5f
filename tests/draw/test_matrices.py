from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from vitral.base.errors import UsageError
from vitral.draw.matrices import _most_confused, confusion_figure, grid_of_grids, matrix_figure


def test_one_matrix(whole: Callable, golden: Callable) -> None:
    matrix = np.random.default_rng(0).random((9, 9))
    figure = matrix_figure(matrix, title="Block 3, head 1", prefix=1)
    whole(figure)
    golden(figure, "matrix_figure")
    axes = figure.axes[0]
    assert (axes.images[0].get_array() == matrix).all()
    assert axes.images[0].get_clim() == (matrix.min(), matrix.max())
    assert axes.lines[0].get_ydata()[0] == 0.5, "the class token is set apart"


def test_many_matrices_on_their_own_or_one_scale(whole: Callable, golden: Callable) -> None:
    matrices = np.stack([np.eye(5), np.eye(5) * 10, np.eye(5) * 100])
    own = matrix_figure(matrices, titles=["a", "b", "c"], per_row=2)
    whole(own)
    golden(own, "matrix_figure_many")
    assert [axes.images[0].get_clim()[1] for axes in own.axes[:3]] == [1, 10, 100]
    assert not own.axes[3].get_visible()
    shared = matrix_figure(matrices, shared=True, signed=True)
    whole(shared)
    assert {axes.images[0].get_clim() for axes in shared.axes[:3]} == {(-100, 100)}


@pytest.mark.parametrize("shape", [(3, 4, 3, 4), (2, 9, 2, 9), (30, 30, 4, 4)])
def test_each_small_map_stands_at_its_place(whole: Callable, golden: Callable, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).random(shape)
    figure = grid_of_grids(values, title="Positions")
    whole(figure)
    if shape[0] == 3:
        golden(figure, "grid_of_grids")
    page = np.ma.filled(figure.axes[0].images[0].get_array(), np.nan)
    filled = page[~np.isnan(page).all(axis=1)][:, ~np.isnan(page).all(axis=0)]
    expected = values.transpose(0, 2, 1, 3).reshape(shape[0] * shape[2], shape[1] * shape[3])
    assert (filled == expected).all()
    places = figure.axes[0].get_xticks()
    gap = (page.shape[1] - shape[1] * shape[3]) // (shape[1] - 1)
    step = int(figure.axes[0].get_xticklabels()[1].get_text())
    assert places[1] - places[0] == step * (shape[3] + gap)


def test_confusion(whole: Callable, golden: Callable) -> None:
    counts = np.array([[8, 2, 0], [0, 5, 0], [0, 0, 0]])
    figure = confusion_figure(counts, ["cat", "dog", "a class with a very long name"])
    whole(figure)
    golden(figure, "confusion_figure")
    axes = figure.axes[0]
    assert np.allclose(axes.images[0].get_array(), [[0.8, 0.2, 0], [0, 1, 0], [0, 0, 0]])
    assert sorted(text.get_text() for text in axes.texts) == ["2", "5", "8"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog", "a class with a ve…"]
    assert figure.get_suptitle() == "86.7 % of 15 right"


def test_a_confusion_of_many_classes_stays_readable(whole: Callable) -> None:
    figure = confusion_figure(np.eye(100, dtype=int), [f"flower {n}" for n in range(100)], title="Flowers")
    whole(figure)
    assert len(figure.axes[0].get_yticklabels()) <= 25
    assert not figure.axes[0].texts


def test_wrong_use() -> None:
    for call in (
        lambda: matrix_figure(np.zeros(3)),
        lambda: grid_of_grids(np.zeros((3, 3))),
        lambda: confusion_figure(np.zeros((2, 3))),
    ):
        with pytest.raises(UsageError, match="shape"):
            call()


@pytest.mark.parametrize("classes", [37, 1000])
def test_of_many_classes_the_confused_ones_are_shown_by_name(classes: int) -> None:
    counts = np.eye(classes, dtype=int) * 20
    counts[3, 30], counts[30, 9], counts[20, 21] = 9, 5, 7
    assert _most_confused(counts)[:3] == [3, 30, 9]
    axes = confusion_figure(counts, [f"class {n}" for n in range(classes)]).axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert {"class 3", "class 30", "class 9", "class 20", "class 21"} <= set(labels) and len(labels) <= 20
    assert _most_confused(np.random.default_rng(0).integers(0, 9, (classes, classes)), 12).__len__() == 12


def test_faint_attention_shows_by_its_logarithm(whole: Callable) -> None:
    matrix = np.full((9, 9), 1e-3) + np.eye(9) * 0.9
    matrix[0, 8] = 1e-9
    figure = matrix_figure(matrix, log=True, label="attention (logarithmic)")
    whole(figure)
    image = figure.axes[0].images[0]
    assert image.get_clim() == (1e-3, matrix.max()), "over four powers of ten at most"
    shown = image.cmap(image.norm(matrix))[..., :3].mean(axis=2)
    assert shown[0, 8] == shown[0, 1] == shown.min() and shown[0, 0] == shown.max()


def test_rows_and_columns_have_whole_numbers() -> None:
    axes = matrix_figure(np.eye(4)).axes[0]
    assert all(float(tick).is_integer() for tick in (*axes.get_xticks(), *axes.get_yticks()))
