"""Switching parts off, against the weights set to zero by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import vitral
from vitral import look
from vitral.look.switch_off import Off, edits_for


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


def test_rivals_have_no_heads() -> None:
    with pytest.raises(vitral.VitralError, match="cnn"):
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


def test_maps_made_of_weights_know_that_a_head_is_off(make, images) -> None:
    """Rollout over the heads that are left, each with its old share: what the head is missing goes to the residual path."""
    model = make()
    image = images(model, 1)
    both = torch.cat([image, image])
    tape = vitral.watch(model, both, edits=edits_for([Off(), Off(heads=((0, 1), (0, 2), (2, 0)))]))
    plain = vitral.watch(model, image)
    np.testing.assert_allclose(look.rollout(tape, 0).grid, look.rollout(plain).grid, atol=1e-12)
    product = torch.eye(17, dtype=torch.float64)
    for block, left in enumerate(([0], [0, 1, 2], [1, 2])):
        weights = tape.attention(block)[1, left].sum(dim=0) / 3 + torch.eye(17, dtype=torch.float64)
        product = weights / weights.sum(dim=-1, keepdim=True) @ product
    np.testing.assert_allclose(look.rollout(tape, 1).grid.ravel(), product[0, 1:].numpy(), atol=1e-12)
    assert (tape.attention(0)[1, 1:] == 0).all() and look.attention(tape, 1, block=0, head=1).grid.max() == 0


def test_a_block_that_is_off_adds_nothing(make, images) -> None:
    model = make()
    image = images(model, 1)
    tape = vitral.watch(model, image, keep=["embedding", "blocks.*.output"], edits=edits_for([Off(attention=(0, 1), mlp=(0,))]))
    torch.testing.assert_close(tape["blocks.0.output"], tape["embedding"])
    assert (tape["blocks.1.output"] - tape["blocks.0.output"]).abs().max() > 1e-3, "its MLP is on"


def test_an_ablation_shows_itself(make, images) -> None:
    model = make()
    found = look.ablate(vitral.watch(model, images(model)))
    assert found._repr_png_().startswith(b"\x89PNG")
    shown = found._repr_html_()
    assert '<img src="data:image/png;base64,' in shown and "<th>block</th><th>head 0</th>" in shown and "<th>both</th>" in shown
    assert shown.count("<tr>") == 1 + model.config.depth and repr(found).startswith("Ablation(")
