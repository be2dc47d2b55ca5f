"""Anybody's module behind our interface."""

import pytest
import torch
from torch import nn

from vitral.base.errors import UsageError
from vitral.build import build
from vitral.config import ModelConfig
from vitral.model.tape import Tape
from vitral.rivals.own_module import OwnModule

CONFIG = ModelConfig(family="own", image_size=(8, 8), channels=1, classes=10)


def module(classes: int = 10) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, classes))


def test_it_passes_images_through():
    own = module().train()
    model = OwnModule(CONFIG, own)
    assert own.training and not own[1].running_mean.any(), "trying it out leaves no trace"
    images = torch.randn(3, 1, 8, 8)
    tape = Tape(model.eval(), keep=["logits"])
    assert torch.equal(model(images, tape=tape), own(images)) and torch.equal(tape.logits, own(images))
    assert repr(model).startswith("own(8×8×1 → 10 classes, 778 parameters)")
    with pytest.raises(UsageError, match="images"):
        model(torch.zeros(1, 3, 8, 8))


def test_other_answers_are_refused_before_anything_is_spent():
    with pytest.raises(UsageError, match=r"\(2, 7\).*\(2, 10\)"):
        OwnModule(CONFIG, module(7))

    class Pair(nn.Linear):
        def forward(self, input):
            return input, input

    with pytest.raises(UsageError, match="tuple"):
        OwnModule(CONFIG, Pair(1, 1))


def test_a_config_cannot_build_it():
    with pytest.raises(UsageError, match="module"):
        build(CONFIG)
