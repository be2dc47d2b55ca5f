"""The lens against the model itself cut short, and a trained one against what it must recover."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch

import vitral
from vitral import look
from vitral.look.lens import TrainedLens, fit_lens


@torch.no_grad()
def test_equals_the_model_cut_short(any_model, images) -> None:
    batch = images(any_model)
    found = look.lens(vitral.watch(any_model, batch), 1)
    for depth in range(any_model.config.depth + 1):
        short = copy.deepcopy(any_model)
        short.blocks = short.blocks[:depth]
        np.testing.assert_allclose(found.logits[depth], short(batch[1:])[0].numpy(), atol=1e-10)
    np.testing.assert_allclose(found.logits[-1], any_model(batch[1:])[0].numpy(), atol=1e-10)
    assert found.patches.shape == (4, *any_model.config.grid, 5)


@torch.no_grad()
def test_a_patch_is_read_by_the_last_norm_and_the_head(make, images) -> None:
    model = make()
    batch = images(model)
    tape = vitral.watch(model, batch, keep=["blocks.1.output"])
    token = tape["blocks.1.output"][0, 1 + 6]  # row 1, column 2 of a 4 × 4 grid
    by_hand = model.head.linear(torch.nn.functional.layer_norm(token, (24,), model.norm.weight, model.norm.bias, 1e-6))
    np.testing.assert_allclose(look.lens(tape).patches[2, 1, 2], by_hand.numpy(), atol=1e-10)


def test_settled_and_plain_values(make, images) -> None:
    model = make()
    found = look.lens(vitral.watch(model, images(model)), target=3)
    told = found.to_dict(top=2)
    assert told["target"] == model.origin.class_name(3) and len(told["blocks"]) == 4 and len(told["blocks"][0]["classes"]) == 2
    assert (found.answers[found.decided_at :] == found.answers[-1]).all()
    assert found.decided_at == 0 or found.answers[found.decided_at - 1] != found.answers[-1]
    assert found.draw().axes


@torch.no_grad()
def test_a_trained_lens_finds_a_linear_model(make, images, tmp_path) -> None:
    """Blocks that only add a fixed vector are linear maps: the trained lens must foresee the end exactly."""
    model = make()
    for index, block in enumerate(model.blocks):
        for name, parameter in block.named_parameters():
            if name.startswith(("attention.projection", "mlp.contract")):
                parameter.zero_()
        block.mlp.contract.bias.copy_(torch.randn(24, generator=torch.Generator().manual_seed(index), dtype=torch.float64))
    trained = fit_lens(model, images(model, 10).split(1), "noise")
    tape = vitral.watch(model, images(model, 2, seed=9))
    plain, better = look.lens(tape, 1), look.lens(tape, 1, trained=trained)
    end = plain.logits[-1]
    assert np.abs(plain.logits[0] - end).max() > 0.1
    np.testing.assert_allclose(better.logits[:-1], np.stack([end] * 3), atol=1e-4)
    assert better.trained and trained.facts["agreement"]["trained"] == [1.0, 1.0, 1.0]
    again = TrainedLens.read(trained.save(tmp_path / "lens.safetensors"))
    np.testing.assert_array_equal(look.lens(tape, 1, trained=again).logits, better.logits)
    with pytest.raises(vitral.VitralError, match="weights"):
        look.lens(vitral.watch(make(seed=5), images(model)), trained=again)


def test_several_labels_have_probabilities_of_their_own_and_one_output_has_none(make, images) -> None:
    model = make()
    model.origin = dataclasses.replace(model.origin, thresholds=(0.5,) * 5)
    tape = vitral.watch(model, images(model))
    found = look.lens(tape)
    np.testing.assert_allclose(found.probabilities[-1], tape.logits[0].detach().sigmoid().numpy(), atol=1e-12)
    np.testing.assert_allclose(found.patch_probabilities, 1 / (1 + np.exp(-found.patches)), atol=1e-12)
    one = make(classes=1)
    found = look.lens(vitral.watch(one, images(one)))
    told = found.to_dict()
    assert found.unit == "output" and "settled" not in told and set(told["blocks"][-1]["classes"][0]) == {"class", "output"}
    labels = [axes.get_ylabel() for axes in found.draw().axes if axes.get_ylabel()]
    assert "output" in labels and not any("probability" in label for label in labels)


def test_what_has_no_lens_says_so(make, images, tmp_path) -> None:
    with pytest.raises(vitral.VitralError, match="cnn"):
        look.lens(vitral.watch(vitral.create("cnn"), torch.zeros(1, 3, 32, 32)))
    headless = make(classes=0)
    with pytest.raises(vitral.VitralError, match="no head"):
        look.lens(vitral.watch(headless, images(headless)))
    model = make()
    with pytest.raises(vitral.VitralError, match="picture 7"):
        look.lens(vitral.watch(model, images(model)), 7)
    vitral.save(model, tmp_path)
    with pytest.raises(vitral.VitralError, match="trained"):
        TrainedLens.read(tmp_path / "model.safetensors")
