"""Looking inside on a GPU: the same logits with and without a tape, the same maps as on the CPU."""

from __future__ import annotations

import pytest
import torch

from vitral import look
from vitral.build import create
from vitral.look.watch import watch

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


def test_a_watched_pass_is_the_plain_pass_and_the_cpus(cuda: torch.device) -> None:
    torch.manual_seed(0)
    model, images = create("tiny").eval(), torch.randn(2, 3, 32, 32)
    here = watch(model, images)
    there = watch(model.to(cuda), images.to(cuda))
    with torch.no_grad():
        assert torch.allclose(there.logits, model(images.to(cuda)), atol=1e-4)
    assert torch.allclose(there.logits.cpu(), here.logits, atol=1e-3)
    for block in range(2):
        assert torch.allclose(there.attention(block).cpu(), here.attention(block), atol=1e-4)
    assert abs(look.rollout(there).grid - look.rollout(here).grid).max() < 1e-4
