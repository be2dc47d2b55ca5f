"""R2's CNN, layer by layer."""

import pytest
import torch
from torch import nn

from vitral.base.errors import ConfigError
from vitral.build import create


def test_is_the_network_that_the_report_prints():
    torch.manual_seed(0)
    model = create("cnn").eval()
    layers, inside = [], 3
    for first, second in [(32, 64), (128, 128), (256, 256)]:
        layers += [nn.Conv2d(inside, first, 3, 1, 1), nn.ReLU(), nn.Conv2d(first, second, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2, 2)]
        layers += [nn.BatchNorm2d(second)]
        inside = second
    layers += [nn.Flatten(), nn.Linear(4096, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)]
    printed = nn.Sequential(*layers).eval()
    printed.load_state_dict(dict(zip(printed.state_dict(), model.state_dict().values(), strict=True)))
    images = torch.randn(2, 3, 32, 32)
    assert torch.allclose(printed(images), model(images), atol=1e-6)


def test_adapts_to_other_pictures_and_refuses_tiny_ones():
    assert create("cnn", image_size=8, channels=1)(torch.randn(2, 1, 8, 8)).shape == (2, 10)
    with pytest.raises(ConfigError, match="8×8"):
        create("cnn", image_size=4)


def test_width_scales_every_layer():
    narrow = create("report-mnist-cnn")
    assert [layer.out_channels for stage in narrow.stages for layer in stage if isinstance(layer, nn.Conv2d)] == [3, 6, 12, 12, 24, 24]
    vit = sum(parameter.numel() for parameter in create("report-mnist").parameters())
    cnn = sum(parameter.numel() for parameter in narrow.parameters())
    assert cnn == 52_180 and abs(cnn - vit) / vit < 0.05, "the report compares models of equal size"
