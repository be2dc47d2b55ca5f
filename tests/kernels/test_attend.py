"""Attention in bf16 on a CPU by two products, beside the fused kernel."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from vitral.build import create
from vitral.kernels import attend as kernel
from vitral.kernels.attend import attend, images_at_a_time


def three(*shape: int, asked: int | None = None, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    """Queries, keys and values as a ViT has them: heads and tokens exchanged, cut out of one tensor."""
    batch, heads, count, width = shape
    joined = torch.randn(batch, count, 3, heads, width, generator=torch.Generator().manual_seed(0)).to(dtype)
    query, key, value = (each.transpose(1, 2) for each in joined.unbind(2))
    return [query[:, :, :asked], key, value]


@pytest.mark.parametrize("asked", [None, 1, 3])
@pytest.mark.parametrize("biased", [None, 1, 5])
@pytest.mark.parametrize("most", [2**22, 2 * 3 * 13 * 13, 3 * 13])
def test_two_products_are_the_fused_kernel(asked: int | None, biased: int | None, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_MOST", most)
    query, key, value = three(5, 3, 13, 16, asked=asked)
    bias = None if biased is None else torch.randn(biased, 3, query.shape[2], 13)
    exact = F.scaled_dot_product_attention(query.double(), key.double(), value.double(), None if bias is None else bias.double())
    mine = attend(query, key, value, bias if bias is None else bias.bfloat16())
    assert mine.shape == exact.shape and mine.dtype == torch.bfloat16
    assert (mine.double() - exact).abs().max() < 0.03  # bf16 has three digits


def test_where_they_pay_and_where_not(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, _ = three(5, 3, 13, 16)
    assert images_at_a_time(query, key) >= 5
    assert images_at_a_time(query.float(), key.float()) == 0, "fp32 keeps the fused kernel, and its bits"
    with torch.autocast("cpu", torch.bfloat16):
        assert images_at_a_time(query.float(), key.float()) >= 5
    monkeypatch.setattr(kernel, "_MOST", 2 * 3 * 13 * 13)
    assert images_at_a_time(query, key) == 2
    assert images_at_a_time(query.clone().requires_grad_(), key) == 2, "also where something is learnt"
    monkeypatch.setattr(kernel, "_MOST", 3 * 13 * 13 - 1)
    assert images_at_a_time(query, key) == 0, "one image alone has too many"


@pytest.mark.parametrize("most", [2**22, 2 * 3 * 13 * 13])
def test_gradients_are_those_of_the_fused_kernel(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_MOST", most)
    mine, exact = ([each.detach().requires_grad_() for each in three(5, 3, 13, 16)] for _ in range(2))
    above = torch.randn(5, 3, 13, 16)
    attend(mine[0], mine[1], mine[2]).backward(above.bfloat16())
    F.scaled_dot_product_attention(exact[0].float(), exact[1].float(), exact[2].float()).backward(above)
    for one, other in zip(mine, exact, strict=True):
        assert one.grad is not None and other.grad is not None
        assert torch.cosine_similarity(one.grad.float().flatten(), other.grad.float().flatten(), dim=0) > 0.999


def test_scores_of_several_parts_are_not_kept_for_the_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_MOST", 2 * 3 * 13 * 13)
    kept: list[tuple[int, ...]] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        attend(*(each.requires_grad_() for each in three(5, 3, 13, 16))).sum()
    assert all(shape[-2:] != (13, 13) for shape in kept)


def test_a_model_in_bf16_answers_as_in_fp32() -> None:
    model = create("ti/16", classes=10, image_size=64, positions="learned").eval()
    images = torch.randn(4, 3, 64, 64)
    with torch.no_grad():
        exact = model(images)
        with torch.autocast("cpu", torch.bfloat16):
            quick = model(images)
    assert torch.cosine_similarity(exact, quick.float()).min() > 0.999
