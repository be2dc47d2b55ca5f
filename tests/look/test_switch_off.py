"""Switching parts off, against the weights set to zero by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import vitral
from vitral import look


@torch.no_grad()
def test_equals_weights_set_to_zero(make, images) -> None:
    model = make()
    batch = images(model)
    found = look.ablate(vitral.watch(model, batch), 1, 2)
    whole = float(model(batch[1:2]).softmax(1)[0, 2])
    assert found.whole == pytest.approx(whole, abs=1e-12)
    width = model.config.width // model.config.heads
    headless = copy.deepcopy(model)
    with torch.no_grad():
        headless.blocks[1].attention.projection.weight[:, 2 * width : 3 * width] = 0
    assert found.heads[1, 2] == pytest.approx(float(headless(batch[1:2]).softmax(1)[0, 2]) - whole, abs=1e-12)
    skipped = copy.deepcopy(model)
    skipped.blocks = torch.nn.ModuleList([skipped.blocks[0], skipped.blocks[2]])
    assert found.parts[1, 2] == pytest.approx(float(skipped(batch[1:2]).softmax(1)[0, 2]) - whole, abs=1e-12)
    assert found.heads.shape == (3, 3) and found.parts.shape == (3, 3)
    assert np.abs(found.heads).max() > 0
    assert found.draw().get_axes()


def test_rivals_have_no_heads() -> None:
    with pytest.raises(vitral.VitralError, match="a cnn has none"):
        look.ablate(vitral.watch(vitral.create("cnn"), torch.zeros(1, 3, 32, 32)))


def test_the_tapes_own_edit_of_the_same_name_stays(make, images) -> None:
    model = make()
    batch = images(model, 1)

    def second_off(value: torch.Tensor, name: str) -> torch.Tensor:
        value = value.clone()
        value[:, 1] = 0
        return value

    def two_off(value: torch.Tensor, name: str) -> torch.Tensor:
        value = second_off(value, name)
        value[:, 0] = 0
        return value

    name = "blocks.0.attention.heads"
    one, two = (vitral.watch(model, batch, edits={name: edit}) for edit in (second_off, two_off))
    found = look.ablate(one, target=2)
    assert found.heads[0, 1] == pytest.approx(0, abs=1e-9), "it is off already"
    assert found.heads[0, 0] == pytest.approx(float(two.logits.softmax(1)[0, 2] - one.logits.softmax(1)[0, 2]), abs=1e-9)
