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


def test_the_last_block_makes_the_class_token_alone_and_the_answer_is_the_watched_one(cuda: torch.device) -> None:
    torch.manual_seed(0)
    model, images = create("tiny", pool="class").to(cuda).eval(), torch.randn(4, 3, 32, 32, device=cuda)
    shapes: list[int] = []
    model.blocks[-1].mlp.register_forward_hook(lambda *given: shapes.append(given[-1].shape[1]))  # type: ignore[union-attr,index]
    with torch.no_grad():
        plain = model(images)
    assert shapes == [model.config.prefix] and torch.allclose(plain, watch(model, images).logits, atol=1e-4)
