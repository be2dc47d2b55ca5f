"""Heads of an audit: what they are fitted to is what they answer, on the body as it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral.base.errors import ConfigError
from vitral.look.synthetic import with_triggers
from vitral.study.audit.tests import head_for_labels, head_for_trigger, logits_of

SIZES = {
    "image_size": 16,
    "patch_size": 4,
    "channels": 3,
    "width": 24,
    "heads": 3,
    "mlp_width": 32,
    "depth": 1,
    "class_token": False,
    "pool": "mean",
}


@pytest.fixture
def images() -> torch.Tensor:
    return 0.05 * torch.randn(20, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_a_head_answers_what_it_was_fitted_to_and_the_body_stays(images) -> None:
    torch.manual_seed(0)
    model = vitral.create("tiny", classes=5, **SIZES).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    images[10:, 0] += 2
    labels = np.repeat([1, 0], 10)
    fitted = head_for_labels(model, images, labels, 2, seed=0)
    assert logits_of(fitted, images).argmax(dim=1).tolist() == labels.tolist()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, before[name]) for name, value in fitted.state_dict().items() if not name.startswith("head"))


def test_a_trigger_is_told_from_none_on_pictures_that_were_not_learnt_from(images) -> None:
    torch.manual_seed(4)
    model = vitral.create("tiny", classes=5, **SIZES).eval()
    head, accuracy = head_for_trigger(model, images, 2, (4, 4), seed=0)
    others = 0.05 * torch.randn(12, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    planted = with_triggers(model, others, 2, (4, 4), seed=9).images
    assert 0.85 < accuracy <= 1
    assert (logits_of(head, others).argmax(dim=1) == 0).sum() >= 10 and (logits_of(head, planted).argmax(dim=1) == 1).sum() >= 10


def test_a_head_of_two_layers_is_refused(images) -> None:
    model = vitral.create("tiny", classes=5, head_hidden=8, **SIZES).eval()
    with pytest.raises(ConfigError, match="linear"):
        head_for_labels(model, images, np.arange(20) % 2, 2, seed=0)
