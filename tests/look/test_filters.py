"""First-layer filters."""

from __future__ import annotations

import numpy as np
import pytest

import vitral
from vitral import look


def test_components_of_the_patch_embedding(make) -> None:
    model = make(width=48)
    found = look.filters(model, count=28)
    assert found.tiles.shape == (28, 4, 4, 3)
    assert found.explained is not None and 0 < found.explained.sum() <= 1
    flat = found.tiles.transpose(0, 3, 1, 2).reshape(28, -1)
    np.testing.assert_allclose(flat @ flat.T, np.eye(28), atol=1e-9)  # every panel another component
    weight = model.patches.projection.weight.detach().numpy().reshape(48, -1)
    centred = weight - weight.mean(axis=0)
    shares = ((centred @ flat.T) ** 2).sum(axis=0) / (centred**2).sum()
    np.testing.assert_allclose(found.explained, shares, atol=1e-9)
    assert (flat[np.arange(28), np.abs(flat).argmax(axis=1)] > 0).all()


def test_rivals_show_their_filters() -> None:
    model = vitral.create("cnn")
    found = look.filters(model, count=10)
    assert found.explained is None and found.tiles.shape == (10, 3, 3, 3)
    norms = np.linalg.norm(found.tiles.reshape(10, -1), axis=1)
    assert (np.diff(norms) <= 0).all()
    assert "strongest of 32" in found.title
    assert look.filters(vitral.create("hybrid")).tiles.shape[-1] == 3
    with pytest.raises(vitral.VitralError, match="count = 0"):
        look.filters(model, count=0)


def test_any_number_of_channels_can_be_drawn(make) -> None:
    for channels, shape in ((1, (20, 4, 4)), (2, (20, 4, 4)), (5, (20, 4, 4, 3))):
        found = look.filters(make(channels=channels), count=20)
        assert found.shown.shape[1:] == shape[1:]
        figure = found.draw()
        drawn = [axes.images[0].get_array().shape for axes in figure.axes if axes.images]
        assert drawn == [(4, 4, 3)] * len(found.tiles) and figure.get_suptitle() == found.title
        assert figure.axes[0].get_title() == found.captions[0]
