"""fp8 on a GPU that has it: the product against its plain twin, and a model's answers beside bf16."""

from __future__ import annotations

import pytest
import torch

from vitral.build import create
from vitral.cost.eight_bits import AnsweringInFp8
from vitral.kernels.fp8 import has_eight_bits, in_eight_bits, plain_product, round_to_eight, scaled_product

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


def test_the_product_is_its_twin(cuda: torch.device) -> None:
    assert has_eight_bits(cuda), "this GPU has no fp8: run these tests on an Ada, a Hopper or a later one"
    torch.manual_seed(0)
    scale, bias = torch.tensor(0.01, device=cuda), torch.randn(96, device=cuda, dtype=torch.bfloat16)
    tokens, weight = (round_to_eight(torch.randn(rows, 64, device=cuda), scale) for rows in (160, 96))
    for shift in (bias, None):
        mine, twin = (product(tokens, weight, scale, scale, shift) for product in (scaled_product, plain_product))
        assert mine.dtype == torch.bfloat16 and (mine - twin).abs().max() <= 0.02 * twin.abs().max()


def test_answers_of_batches_of_two_sizes(cuda: torch.device) -> None:
    torch.manual_seed(0)
    model = create("s/16", image_size=64, depth=2, classes=10).to(cuda).eval()
    images = torch.randn(48, 3, 64, 64, device=cuda)
    answer = AnsweringInFp8(model, cuda, [images], batches=2)
    with torch.no_grad():
        assert in_eight_bits(model, [images])(images[:1]).isfinite().all(), "one row in the last block"
        found = torch.cat([answer(images[:32]), answer(images[32:])])
        exact = model(images)
    assert torch.cosine_similarity(found, exact).min() > 0.98
    assert answer.compared == 48 and answer.same >= 30, "untrained answers are near ties, but not that near"
