"""Occlusion against covering by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral import look
from vitral.look.occlusion import _fill_between
from vitral.look.rerun import run, run_fast


@torch.no_grad()
def test_covers_what_it_says(make, images) -> None:
    model = make(image_size=(16, 24), patch_size=(4, 8))
    batch = images(model)
    heat = look.occlusion(vitral.watch(model, batch), 1, 3, size=1)
    assert heat.grid.shape == (4, 3)
    covered = batch[1:2].clone()
    covered[:, :, 8:12, 16:24] = 0
    fall = model(batch[1:2]).softmax(1)[0, 3] - model(covered).softmax(1)[0, 3]
    assert heat.grid[2, 2] == pytest.approx(float(fall), abs=1e-12)
    wide = look.occlusion(vitral.watch(model, batch), 1, 3, size=3)
    covered = batch[1:2].clone()
    covered[:, :, 0:8, 0:16] = 0  # around the corner patch only the inner part exists
    fall = model(batch[1:2]).softmax(1)[0, 3] - model(covered).softmax(1)[0, 3]
    assert wide.grid[0, 0] == pytest.approx(float(fall), abs=1e-12)


def test_rivals_and_regression(make, images) -> None:
    cnn = vitral.create("cnn", image_size=16)
    assert look.occlusion(vitral.watch(cnn, torch.randn(1, 3, 16, 16))).grid.shape == (14, 14)
    model = make(classes=1)
    heat = look.occlusion(vitral.watch(model, images(model)))
    assert heat.unit == "fall of the output" and heat.grid.any()


def test_bad_size(make, images) -> None:
    model = make()
    with pytest.raises(vitral.VitralError, match="size = 9"):
        look.occlusion(vitral.watch(model, images(model)), size=9)


def test_every_second_square_where_they_are_many(make, images) -> None:
    model = make(image_size=(36, 36), patch_size=(4, 4))
    tape = vitral.watch(model, images(model))
    quick, exact = look.occlusion(tape), look.occlusion(tape, exact=True)
    measured = np.add.outer(np.arange(9), np.arange(9)) % 2 == 0
    np.testing.assert_allclose(quick.grid[measured], exact.grid[measured], atol=1e-12)
    assert "every second one" in quick.note and "every second" not in exact.note
    assert "every second" not in look.occlusion(tape, size=1).note, "squares of one patch share nothing with their neighbours"


def test_in_bf16_the_head_stays_exact_and_edits_are_kept(make, images, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make().float()
    batch = images(model).float()
    tape = vitral.watch(model, batch)
    assert torch.equal(run_fast(tape, batch), run(tape, batch)), "a small model gains nothing"
    for name in ("has_bf16", "worth_bf16"):
        monkeypatch.setattr(f"vitral.look.rerun.{name}", lambda _: True)
    with torch.no_grad():
        quick, exact = run_fast(tape, batch), run(tape, batch)
    assert quick.dtype == torch.float32 and not torch.equal(quick, exact)
    assert (quick.bfloat16().float() != quick).any(), "logits are not rounded"
    torch.testing.assert_close(quick, exact, atol=0.05, rtol=0.05)
    edited = vitral.watch(model, batch, edits={"pooled": lambda value, _: value * 0})
    assert torch.equal(run_fast(edited, batch), run(edited, batch))


def test_what_is_missing_lies_between_its_neighbours() -> None:
    rows, columns = np.indices((9, 12))
    smooth = np.sin(rows / 4) + columns / 6
    found = _fill_between(np.where((rows + columns) % 2, np.nan, smooth))
    np.testing.assert_allclose(found[1:-1, 1:-1], smooth[1:-1, 1:-1], atol=0.1)
    assert np.corrcoef(found.ravel(), smooth.ravel())[0, 1] > 0.99
