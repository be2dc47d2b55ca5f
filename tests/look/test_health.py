"""Norms and artefact tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral import look
from vitral.look.health import outlier_threshold


def test_finds_planted_artefacts_and_no_others(make, images) -> None:
    model = make(registers=1)
    batch = images(model)

    def spoil(value, name):
        value = value.clone()
        value[:, model.config.prefix + 6] *= 50
        return value

    assert look.health(vitral.watch(model, batch)).artefacts == []
    tape = vitral.watch(model, batch, keep=["blocks.*.output"], edits={"blocks.2.output": spoil})
    found = look.health(tape, 1)
    assert found.artefacts == [(2, 1, 2)]
    assert found.finding == "1 artefact token after the last block; there are some in 1 of 3 blocks"
    heat = look.norms(tape, 1)
    assert heat.peak == (1, 2) and heat.note == "1 artefact token"
    expected = tape["blocks.2.output"][1, model.config.prefix :].norm(dim=-1).numpy().reshape(4, 4)
    np.testing.assert_allclose(heat.grid, expected)
    assert found.prefix.shape == (3, 2) and found.patches.shape == (3, 4, 4)
    axes = found.draw().axes[0]
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    np.testing.assert_allclose(lines["largest patch"], found.patches.max(axis=(1, 2)))
    np.testing.assert_allclose(lines["class token"], found.prefix[:, 0])
    assert (axes.get_yscale(), axes.get_xlabel(), axes.get_ylabel()) == ("log", "block", "norm of the token")
    assert axes.figure.get_suptitle().startswith("1 artefact token after")


def test_rivals_have_no_tokens() -> None:
    with pytest.raises(vitral.VitralError, match="cnn"):
        look.norms(vitral.watch(vitral.create("cnn"), torch.zeros(1, 3, 32, 32)))


def test_a_patch_is_no_artefact_for_standing_out_among_equals() -> None:
    """Where all norms are alike their spread is nothing: an artefact must also be clearly larger."""
    norms = np.array([[1.0, 1.0, 1.0, 1.0, 1.2], [1.0, 1.0, 1.0, 1.0, 1.6], [1.0, 2.0, 3.0, 4.0, 9.0]])
    assert (norms > outlier_threshold(norms)[:, None]).sum(axis=1).tolist() == [0, 1, 0]
