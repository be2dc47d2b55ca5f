"""torchvision's ResNets behind our interface."""

import torch
import torchvision

from vitral.build import create
from vitral.look.watch import watch


def test_computes_what_torchvision_computes():
    torch.manual_seed(0)
    model = create("resnet18", image_size=96, classes=7).eval()
    reference = torchvision.models.resnet18(weights=None, num_classes=7).eval()
    reference.load_state_dict(model.network.state_dict())
    images = torch.randn(2, 3, 96, 96)
    assert torch.allclose(model(images), reference(images), atol=1e-6)
    assert torch.allclose(watch(model, images).logits, reference(images), atol=1e-6)


def test_small_pictures_keep_their_resolution():
    model = create("resnet18", image_size=32, classes=10, channels=1).eval()
    maps = model.features(torch.randn(1, 1, 32, 32), blocks=[0, 3])
    assert [tuple(value.shape) for value in maps] == [(1, 64, 32, 32), (1, 512, 4, 4)]
    assert model.pooled(torch.randn(1, 1, 32, 32)).shape == (1, 512)
