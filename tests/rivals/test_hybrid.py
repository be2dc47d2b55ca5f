"""The hybrid: a feature map is the source of the tokens."""

import torch

from vitral.build import create
from vitral.look.watch import watch


def test_tokens_come_from_the_stem():
    torch.manual_seed(0)
    model = create("hybrid", image_size=(32, 48)).eval()
    images = torch.randn(2, 3, 32, 48)
    assert model.stem(images).shape == (2, 128, 8, 12)
    tape = watch(model, images)
    assert tape.attention(0).shape == (2, 3, 97, 97)
    assert torch.allclose(tape.logits, model(images), atol=1e-5)
    expected = model.stem(images).flatten(2).transpose(1, 2) @ model.patches.projection.weight.flatten(1).T + model.patches.projection.bias
    assert torch.allclose(watch(model, images, keep=["patches"])["patches"], expected, atol=1e-5)


def test_standardised_filters_ignore_their_scale():
    torch.manual_seed(0)
    conv = create("hybrid").stem[0]
    images = torch.randn(1, 3, 8, 8)
    before = conv(images)
    with torch.no_grad():
        conv.weight.mul_(3).add_(0.5)
    assert torch.allclose(conv(images), before, atol=1e-4)
