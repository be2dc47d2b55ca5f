"""What is hidden, what is compared, and that pictures come together again."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from vitral.base.errors import ConfigError
from vitral.build import create
from vitral.config import PretrainConfig
from vitral.model.vit import ViT
from vitral.train.tasks import method_of
from vitral.train.tasks.mae import MAE
from vitral.train.tasks.task import learnable

CONFIG = PretrainConfig(method="mae", global_views=1, local_views=0, decoder_width=16, decoder_depth=1)


def made(**changes: object) -> tuple[ViT, MAE]:
    torch.manual_seed(0)
    model = create("tiny", classes=0, **{"width": 12, "mlp_width": 12, "heads": 2, **changes})
    method = method_of(CONFIG, model)
    assert isinstance(method, MAE) and isinstance(model, ViT)
    return model, method


def test_three_quarters_are_hidden_from_the_encoder() -> None:
    model, method = made()
    seen = []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
    method.losses(model, torch.randn(3, 1, 3, 32, 32), None, None, None, None).loss.backward()
    assert seen == [1 + 16], "a class token and a quarter of 64 patches"
    learns = {name for name, value in learnable(model, method).items() if value.grad is not None}
    assert {"task.unknown", "task.leave.weight", "patches.projection.weight"} <= learns


@pytest.mark.parametrize("stride", [4, 2, 3, 1])
def test_hidden_pixels_change_nothing_that_the_encoder_sees(stride: int) -> None:
    """Neither where patches overlap: one that is shown reaches into those that are hidden."""
    side = 30 if stride == 3 else 32
    model, method = made(stride=stride, image_size=side)
    images, order = torch.randn(2, 3, side, side), method.draw(2, torch.device("cpu"))
    rows = side // stride
    shown = torch.zeros(2, rows * rows).scatter_(1, order, 1.0)
    mask = shown.view(2, 1, rows, rows).repeat_interleave(stride, 2).repeat_interleave(stride, 3)
    assert 0.2 < mask.mean() < 0.3
    other = images * mask + torch.randn_like(images) * (1 - mask)
    assert not torch.allclose(images, other)
    assert torch.allclose(method.rebuild(model, images, order), method.rebuild(model, other, order), atol=1e-5)


def test_the_loss_is_the_squared_error_of_hidden_patches_alone() -> None:
    model, method = made()
    images = torch.randn(2, 1, 3, 32, 32)
    torch.manual_seed(3)
    found = method.losses(model, images, None, None, None, None).loss.item()
    torch.manual_seed(3)
    order = method.draw(2, torch.device("cpu"))
    rebuilt, errors = method.rebuild(model, images[:, 0], order), []
    for picture in range(2):
        for patch in set(range(64)) - set(order[picture].tolist()):
            row, column = divmod(patch, 8)
            pixels = images[picture, 0, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4].flatten()
            wanted = (pixels - pixels.mean()) / (pixels.var() + 1e-6).sqrt()
            errors.append((rebuilt[picture, patch] - wanted).square().mean())
    assert found == pytest.approx(torch.stack(errors).mean().item(), rel=1e-4)


def test_something_is_hidden_however_little_is_asked_for() -> None:
    model, _ = made()
    little = method_of(dataclasses.replace(CONFIG, hidden=0.001), model)
    assert little.losses(model, torch.randn(2, 1, 3, 32, 32), None, None, None, None).loss.isfinite()


def test_pictures_keep_what_is_shown() -> None:
    model, method = made(dropout=0.5, attention_dropout=0.5)
    model.eval()
    order = method.draw(2, torch.device("cpu"))
    assert torch.equal(*(method.rebuild(model, torch.ones(2, 3, 32, 32), order) for _ in range(2))), "no chance but the model's own"
    images = torch.randn(2, 3, 32, 32)
    shown, rebuilt = method.pictures(model, images)
    visible = ~shown.isnan()
    assert torch.allclose(rebuilt[visible], images[visible], atol=1e-5) and 0.2 < visible.float().mean() < 0.3
    assert not torch.allclose(rebuilt, images)


def test_overlapping_patches_are_hidden_in_squares() -> None:
    _, method = made(stride=2)
    order = method.draw(4, torch.device("cpu"))
    grid = torch.zeros(4, 256).scatter_(1, order, 1.0).view(4, 8, 2, 8, 2)
    assert order.shape[1] == 64 and (grid.amax((2, 4)) == grid.amin((2, 4))).all()


@pytest.mark.parametrize("own", [{"positions": "rotary", "rotary": "mixed"}, {"gradient_checkpointing": True}, {"block": "parallel"}])
def test_the_encoder_is_the_model_as_it_runs_by_itself(own: dict[str, object]) -> None:
    """Angles of each block's own, blocks that are run again for their gradients: what is rebuilt from all patches is made of its tokens."""
    model, method = made(width=16, **own)
    images, every = torch.randn(2, 3, 32, 32), torch.arange(64).expand(2, -1)
    entered: list[torch.Tensor] = []
    method.enter.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    method.rebuild(model.train(), images, every)
    assert torch.allclose(entered[0], model.encode(images), atol=1e-5)
    runs: list[int] = []
    model.blocks[0].register_forward_pre_hook(lambda *_: runs.append(1))
    method.loss(model, images[:, None], None).backward()
    assert len(runs) == (2 if model.config.gradient_checkpointing else 1)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"pool": "attention"}, "attention pooling"),
        ({"pool": "map"}, "attention pooling"),
        ({"positions": "relative"}, "of whole grids"),
        ({"patch_size": (32, 32)}, "the whole picture is one"),
    ],
)
def test_what_it_cannot_hide_is_refused(own: dict[str, object], words: str) -> None:
    model = create("tiny", classes=0, **own)
    with pytest.raises(ConfigError, match=words):
        method_of(dataclasses.replace(CONFIG), model)


def test_pixels_can_be_rebuilt_as_they_are() -> None:
    """Mean and spread of 2 × 2 pixels are most of what they show; of one there is no spread at all."""
    model, _ = made()
    plain = method_of(dataclasses.replace(CONFIG, normalised_pixels=False), model)
    assert isinstance(plain, MAE)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(plain._whole(plain.pixels(images)[0]), images)
    shown, rebuilt = plain.pictures(model, images)
    assert torch.equal(rebuilt[~shown.isnan()], images[~shown.isnan()])
    with pytest.raises(ConfigError, match="normalised_pixels=false"):
        method_of(CONFIG, create("tiny", classes=0, image_size=(8, 8), patch_size=(1, 1), channels=1))
