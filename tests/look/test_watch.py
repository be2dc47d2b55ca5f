"""One recorded pass: whatever shows a picture goes in, only what was asked for is kept, and the model is left as it was."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from vitral.base.errors import DataError, UsageError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    return tmp_path / "noise.png"


def test_a_tensor_is_a_batch_or_one_picture(make, images) -> None:
    model = make()
    batch = images(model, 3)
    tape = vitral.watch(model, batch)
    assert torch.equal(tape.logits, model(batch)) and tape.pictures is None and tape.images is not None
    assert torch.allclose(vitral.watch(model, batch[1]).logits, tape.logits[1:2])
    assert torch.allclose(vitral.watch(model, list(batch)).logits, tape.logits)


def test_a_path_a_pil_image_and_a_picture_are_the_same(make, path) -> None:
    model = make()
    picture = vitral.open_picture(path, model)
    tapes = [vitral.watch(model, x) for x in (path, str(path), Image.open(path), picture, picture.tensor)]
    assert all(torch.equal(tape.logits, tapes[0].logits) for tape in tapes)
    assert tapes[0].images.dtype == torch.float64  # the model's own
    for tape in tapes[:4]:
        assert tape.pictures is not None and tape.pictures[0].original.size == (30, 20)
    both = vitral.watch(model, [path, Image.open(path), picture])
    assert both.logits.shape == (3, 5) and both.pictures is not None and len(both.pictures) == 3


def test_what_cannot_be_watched(make, images, path) -> None:
    model = make()
    one = images(model)[0]
    with pytest.raises(UsageError, match="pictures"):
        vitral.watch(model, [])
    for mixed in ([one, path], [one, one[:, :8]]):
        with pytest.raises(UsageError, match="list"):
            vitral.watch(model, mixed)
    with pytest.raises(DataError, match="type int"):
        vitral.watch(model, 7)


def test_only_what_is_asked_for_is_kept(make, images) -> None:
    model = make()
    batch = images(model)
    assert vitral.watch(model, batch).names() == [*(f"blocks.{i}.attention.weights" for i in range(3)), "tokens", "logits"]
    assert vitral.watch(model, batch, keep="blocks.1.attention.*").names() == [
        *(name for name in model.tape_names() if name.startswith("blocks.1.attention.")),
        "tokens",
        "logits",
    ]
    assert vitral.watch(model, batch, keep=["blocks.*.attention.weights", "blocks.2.output"], blocks=[0, -1]).names() == [
        "blocks.0.attention.weights",
        "blocks.2.attention.weights",
        "blocks.2.output",
        "tokens",
        "logits",
    ]


def test_a_pattern_that_matches_nothing_is_corrected(make, images) -> None:
    model = make()
    for options in ({"keep": "blocks.0.atention.weights"}, {"readers": {"blocks.0.atention.weights": print}}):
        with pytest.raises(UsageError, match=r"blocks\.0\.atention.*blocks\.0\.attention"):
            vitral.watch(model, images(model), **options)


def test_heads_and_rows_are_those_of_the_whole(make, images) -> None:
    model = make(registers=1)
    batch = images(model)
    whole = vitral.watch(model, batch).attention(1)  # (B, heads, T, T)
    part = vitral.watch(model, batch, blocks=[1], heads=[2, 0], rows=[0, 5, -1])
    assert torch.allclose(part.attention(1), whole[:, [2, 0]][:, :, [0, 5, -1]], atol=1e-12)
    assert torch.allclose(vitral.watch(model, batch, rows="class").attention(1), whole[:, :, :1], atol=1e-12)
    with pytest.raises(UsageError, match="kept"):
        part.attention(0)


def test_a_row_of_a_class_token_that_does_not_exist(make, images) -> None:
    for model in (make(class_token=False, pool="mean"), make(class_token=False, registers=2, pool="mean")):
        with pytest.raises(UsageError, match="class token"):  # the first token is a patch or a register here
            vitral.watch(model, images(model), rows="class")


@pytest.mark.parametrize(
    ("limits", "reason"), [({"blocks": [3]}, "blocks 0 to 2"), ({"heads": [3]}, "heads 0 to 2"), ({"rows": [17]}, "rows 0 to 16")]
)
def test_limits_that_do_not_exist(make, images, limits, reason) -> None:
    model = make()
    with pytest.raises(UsageError, match=reason):
        vitral.watch(model, images(model), **limits)


def test_no_graph_is_kept_unless_asked_for(make, images) -> None:
    model = make()
    batch = images(model)
    tape = vitral.watch(model, batch)
    assert not tape.logits.requires_grad and not tape.attention(0).requires_grad
    with pytest.raises(UsageError, match="gradients=True"):
        tape.gradient("blocks.0.attention.weights")
    with torch.no_grad():  # asked for, it is kept here too
        tape = vitral.watch(model, batch, gradients=True)
    assert tape.gradient("blocks.0.attention.weights").abs().sum() > 0
    assert all(parameter.grad is None for parameter in model.parameters())
    with torch.inference_mode(), pytest.raises(UsageError, match="inference_mode"):
        vitral.watch(model, batch, gradients=True)


@pytest.mark.parametrize("training", [True, False])
def test_the_pass_is_in_eval_mode_and_the_models_own_mode_comes_back(make, images, training) -> None:
    model = make(dropout=0.5)
    batch = images(model)
    expected = model(batch)
    model.train(training)
    seen = []
    tape = vitral.watch(model, batch, readers={"blocks.0.output": lambda value, name: seen.append(model.training)})
    assert torch.equal(tape.logits, expected) and seen == [False] and model.training is training
    with pytest.raises(ZeroDivisionError):
        vitral.watch(model, batch, edits={"blocks.0.output": lambda value, name: value / (0 // 0)})
    assert model.training is training  # also when something goes wrong on the way


@pytest.mark.parametrize("call", [vitral.watch, vitral.predict])
def test_modules_that_are_frozen_stay_so(call) -> None:
    model = vitral.create("resnet18", classes=5, image_size=32).train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()
    before = [module.training for module in model.modules()]
    call(model, torch.zeros(1, 3, 32, 32))
    assert [module.training for module in model.modules()] == before and True in before and False in before


def test_pixels_in_a_tensor_are_refused(make) -> None:
    model = make()
    pixels = torch.zeros(3, 16, 16, dtype=torch.uint8)
    for shown in (pixels, pixels[None], [pixels, pixels]):
        with pytest.raises(vitral.VitralError, match="uint8"):
            vitral.watch(model, shown)


@pytest.mark.parametrize("call", [vitral.watch, vitral.predict])
def test_pixels_as_floats_are_refused_and_so_is_what_is_no_number(make, call) -> None:
    model = make()
    channels, size = model.config.channels, model.config.image_size
    pixels = torch.linspace(0, 255, channels * size[0] * size[1]).reshape(channels, *size)
    for shown in (pixels, pixels[None], [pixels / 255, pixels]):
        with pytest.raises(vitral.VitralError, match="0 to 255"):
            call(model, shown)
    for wrong in (math.nan, math.inf):
        with pytest.raises(vitral.VitralError, match="NaN"):
            call(model, torch.where(pixels == 255, wrong, pixels / 255))
    assert call(model, 100 * torch.randn(channels, *size)) is not None, "noise far beyond white is still an experiment"
