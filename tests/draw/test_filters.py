from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from vitral.base.errors import UsageError
from vitral.draw.tiles import filter_tiles, filters_beside


def shown(figure) -> list[np.ndarray]:
    return [np.asarray(axes.images[0].get_array()) for axes in figure.get_axes() if axes.images]


def waves(count: int, channels: int) -> np.ndarray:
    y, x = np.mgrid[:6, :6] / 6
    tiles = np.stack([np.sin(2 * np.pi * (x * (n % 3) + y * (n // 3))) for n in range(count)])
    return tiles if channels == 1 else np.stack([tiles, -tiles, 0.5 * tiles], axis=-1)


def test_filters_have_zero_at_mid_grey(whole: Callable, golden: Callable) -> None:
    filters = np.zeros((5, 3, 3, 3))
    filters[1, 0, 0] = [2.0, -2.0, 1.0]
    figure = filter_tiles(filters, captions=[f"{n} %" for n in range(5)], title="Filters", columns=3)
    whole(figure)
    tiles = shown(figure)
    assert (tiles[0] == 128).all()
    assert tiles[1][0, 0].tolist() == [255, 0, 191]
    assert shown(filter_tiles(np.ones((2, 4, 4))))[0].shape == (4, 4, 3)
    golden(filter_tiles(waves(9, 3), captions=[f"{n / 10:.1%}" for n in range(9)], title="Patch embedding"), "filter_tiles")


def test_two_models_one_under_the_other(whole: Callable, golden: Callable) -> None:
    """Grey ones above, in their own scale; coloured ones, fewer and without captions, below."""
    figure = filters_beside([(10 * waves(9, 1), [f"{n / 10:.1%}" for n in range(9)], "ViT"), (waves(4, 3), [], "CNN")])
    whole(figure)
    tiles = shown(figure)
    assert len(tiles) == 13 and [tile.ndim for tile in (tiles[0], tiles[9])] == [2, 3]
    assert tiles[1].max() == 255 and tiles[1].min() == 0
    golden(figure, "filters_beside")


def test_wrong_use() -> None:
    for call in (lambda: filter_tiles(np.zeros((2, 2))), lambda: filters_beside([(np.zeros((0, 2, 2)), [], "none")])):
        with pytest.raises(UsageError, match="shape"):
            call()
