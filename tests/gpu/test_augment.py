"""Augmentation on the device is the augmentation on the CPU: same images, same uniform numbers, same result."""

from __future__ import annotations

import pytest
import torch

from vitral.config import DataConfig
from vitral.data.images.augment import SMALL, Augment, policy
from vitral.data.images.preprocess import Preprocess
from vitral.data.keys import uniforms
from vitral.data.loader import Loader
from vitral.data.splits.open import open_data

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "photographs"), [("light", False), ("standard", False), ("standard", True), ("resized-crop", True), ("strong", False)]
)
@pytest.mark.parametrize("most", [SMALL, 0])
def test_recorded_or_compiled_on_the_device_as_plain_on_the_cpu(
    cuda: torch.device, name: str, photographs: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitral.data.images.augment.SMALL", most)
    chosen, preprocess = policy(name, photographs=photographs), Preprocess((32, 32), 3, (0.5, 0.4, 0.3), (0.2, 0.25, 0.3))
    there, here = (Augment(chosen, preprocess, device, crop=True) for device in (cuda, CPU))
    assert there.fused and not here.fused
    given, made = [], []
    for seed in range(3):  # kept until all are made: a later one may not write over them
        images = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
        given.append((images, uniforms((64, here.columns), CPU, seed, name)))
        made.append(there(*(value.to(cuda) for value in given[-1])))
    for (images, u), one in zip(given, made, strict=True):
        difference = (one.cpu() - here(images, u)).abs()
        # A pixel on a threshold (posterise, solarise, nearest rows) may fall on either side.
        assert (difference > 1e-3).float().mean() < 2e-3, f"largest {difference.max():.3g}"


def test_the_same_labels_mixing_and_order_on_both(cuda: torch.device) -> None:
    data = open_data(DataConfig(name="digits", augment="strong"))
    settings = {"batch_size": 64, "policy": data.policy, "seed": 1, "train": True, "placement": "device"}
    there, here = (Loader(data.train, device=device, **settings) for device in (cuda, CPU))
    for one, other in zip(there.epoch(3), here.epoch(3), strict=True):
        assert one.images.device.type == "cuda" and one.images.shape == other.images.shape
        assert torch.equal(one.indices.cpu(), other.indices) and torch.equal(one.labels.cpu(), other.labels)
        assert (one.labels_b is None) == (other.labels_b is None)
        if one.labels_b is not None and other.labels_b is not None and one.lam is not None and other.lam is not None:
            assert torch.equal(one.labels_b.cpu(), other.labels_b) and torch.equal(one.lam.cpu(), other.lam)


def test_evaluation_sees_the_same_numbers(cuda: torch.device) -> None:
    data = open_data(DataConfig(name="digits"))
    there, here = (Loader(data.validation, batch_size=64, device=device, placement="device") for device in (cuda, CPU))
    for one, other in zip(there.epoch(0), here.epoch(0), strict=True):
        assert torch.allclose(one.images.cpu(), other.images, atol=1e-6)
