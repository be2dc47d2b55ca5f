"""Each operation against torchvision's own where both define the same; the whole is a function of its numbers and compiles to one graph."""

from __future__ import annotations

import pytest
import torch
from torchvision.transforms.v2 import functional as reference

from vitral.config import PretrainConfig
from vitral.data.images.augment import Augment, compiled, views_of
from vitral.data.images.colour import Blur, Grey, Jitter, Solarise, blur, grey, turn_hue
from vitral.data.images.geometry import Rotate
from vitral.data.images.preprocess import Preprocess
from vitral.data.keys import uniforms

CPU = torch.device("cpu")
MEAN = torch.zeros(1, 3, 1, 1)


def pictures(count: int = 64, side: int = 12, channels: int = 3) -> torch.Tensor:
    return torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def numbers(count: int, columns: int) -> torch.Tensor:
    return uniforms((count, columns), CPU, 0)


def test_the_hue_turns_as_in_torchvision_and_grey_pixels_stay() -> None:
    images, turns = pictures(32).float() / 255, torch.linspace(-0.5, 0.5, 32)
    images[:, :, :3] = images[:, :1, :3]
    turned = turn_hue(images, turns.view(-1, 1, 1))
    for image, turn, found in zip(images, turns, turned, strict=True):
        assert torch.allclose(found, reference.adjust_hue(image, float(turn)), atol=2e-5)
    assert torch.allclose(turned[:, :, :3], images[:, :, :3])


def test_jitter_is_torchvisions_brightness_contrast_saturation_and_hue_in_this_order() -> None:
    images, u = pictures(), numbers(64, 5)
    found = Jitter(0.8, 0.4, 0.1)(images, u, MEAN)
    for image, row, got in zip(images.float() / 255, u, found, strict=True):
        wanted = image
        if row[0] < 0.8:
            by = [1 + 0.4 * (2 * float(value) - 1) for value in row[1:4]]
            wanted = reference.adjust_contrast(reference.adjust_brightness(image, by[0]), by[1])
            wanted = reference.adjust_hue(reference.adjust_saturation(wanted, by[2]), 0.1 * (2 * float(row[4]) - 1))
        assert torch.allclose(got, wanted, atol=2e-5)


def test_grey_and_solarised_pictures_are_torchvisions() -> None:
    images = pictures().float() / 255
    assert torch.allclose(grey(images), reference.rgb_to_grayscale(images), atol=1e-6)
    u = numbers(64, 1)
    for operation, wanted in (
        (Grey(0.3), lambda image: reference.rgb_to_grayscale(image, 3)),
        (Solarise(0.3), lambda image: reference.solarize(image, 0.5)),
    ):
        found = operation(images.clone(), u, MEAN)
        for image, row, got in zip(images, u, found, strict=True):
            assert torch.allclose(got, wanted(image) if row[0] < 0.3 else image, atol=1e-6)


@pytest.mark.parametrize("side", [12, 5])
def test_blur_is_torchvisions_gaussian_blur(side: int) -> None:
    images, sigmas = pictures(8, side).float() / 255, torch.linspace(0.1, 2.0, 8)
    for image, sigma, found in zip(images, sigmas, blur(images, sigmas, 3), strict=True):
        assert torch.allclose(found, reference.gaussian_blur(image, [7, 7], [float(sigma)] * 2), atol=1e-5)
    assert Blur(0.5, 1.0).reach == 2


def test_a_turn_is_a_rotation_around_the_middle() -> None:
    ramp = torch.linspace(0, 1, 9).expand(1, 3, 9, 9).clone()
    quarter = Rotate(180.0)(ramp, torch.tensor([[0.75]]), MEAN)  # + 90°
    assert torch.allclose(quarter, ramp.transpose(2, 3), atol=1e-5) or torch.allclose(quarter, ramp.transpose(2, 3).flip(2), atol=1e-5)
    assert torch.allclose(Rotate(30.0)(ramp, torch.tensor([[0.5]]), MEAN), ramp, atol=1e-5)


def test_views_differ_from_each_other_and_repeat_with_their_numbers() -> None:
    views = views_of(PretrainConfig(global_views=2, local_views=3), flip=True, channels=3, side=16)
    maker = Augment(views, Preprocess((16, 16), 3, mean=(0.5,) * 3, std=(0.2,) * 3), CPU)
    images, u = pictures(6, 16), numbers(6, views.columns)
    made = maker(images, u)
    assert made.shape == (6, 5, 3, 16, 16) and views.count == 5
    assert torch.equal(made, maker(images, u)), "bytes are left as they were, numbers decide"
    assert all((made[:, a] - made[:, b]).abs().mean() > 0.01 for a in range(5) for b in range(a))
    assert torch.allclose(made[2:4], maker(images[2:4], u[2:4]), atol=1e-5), "a picture's views do not depend on its batch"


def test_local_views_show_less_and_digits_are_neither_mirrored_nor_coloured() -> None:
    config = PretrainConfig(global_scale=(0.6, 1.0), local_scale=(0.1, 0.2))
    (_, (crop, *_)), (_, (local, *_)) = views_of(config, flip=True, channels=3, side=32).kinds
    assert crop.scale == (0.6, 1.0) and local.scale == (0.1, 0.2)
    plain = views_of(config, flip=False, channels=1, side=8)
    names = {type(operation).__name__ for _, operations in plain.kinds for operation in operations}
    assert "Flip" not in names and "Grey" not in names
    one = Augment(plain, Preprocess((8, 8), 1, mean=(0.5,), std=(0.2,)), CPU)
    assert one(pictures(3, 8, 1), numbers(3, one.columns)).shape == (3, 8, 1, 8, 8)


def test_all_views_are_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where nothing may wait: the branches for a CPU are left out."""
    views = views_of(PretrainConfig(global_views=1, local_views=1, turn=10.0), flip=True, channels=3, side=8)
    everything = lambda mask, images, change, *rest: torch.where(mask.view(-1, 1, 1, 1), change(images, *rest), images)  # noqa: E731
    monkeypatch.setattr("vitral.data.images.colour.apply_where", everything)
    images, u = pictures(4, 8), numbers(4, views.columns)
    found = compiled(views, (4, 3, 8, 8), backend="aot_eager")(views.kinds, images, u, MEAN, MEAN + 1)
    plain = Augment(views, Preprocess((8, 8), 3, mean=(0.0,) * 3, std=(1.0,) * 3), CPU)
    assert torch.allclose(found, plain(images, u), atol=1e-5)
