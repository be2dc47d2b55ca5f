"""Answers in fp8 beside bf16. fp8 itself is emulated here: a CPU has none, and says so to everyone else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vitral.base.errors import UsageError
from vitral.build import create
from vitral.cost import eight_bits
from vitral.cost.eight_bits import AnsweringInFp8
from vitral.kernels.fp8 import Linear8

CPU = torch.device("cpu")


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return create("ti/16", image_size=32, patch_size=(8, 8), depth=1, classes=5).eval()


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eight_bits, "need_eight_bits", lambda device: None)


def test_a_machine_without_fp8_says_so(model: nn.Module) -> None:
    with pytest.raises(UsageError, match="--precision"):
        AnsweringInFp8(model, CPU)


@pytest.mark.usefixtures("emulated")
def test_answers_are_counted_beside_bf16(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randn(6, 3, 32, 32)
    answer = AnsweringInFp8(model, CPU, [images])
    with torch.no_grad():
        found = answer(images)
        with torch.autocast("cpu", torch.bfloat16):
            exact = model(images)
    assert found.dtype == torch.float32 and torch.cosine_similarity(found, exact.float()).min() > 0.98  # fp8 keeps three bits
    same = int((found.argmax(1) == exact.argmax(1)).sum())
    assert str(answer) == f"fp8: the same answer as bf16 on {same} of 6 pictures"
    answer = AnsweringInFp8(model, CPU, [images])
    monkeypatch.setattr(answer, "_eight", lambda images: -exact.float())
    answer(images)
    assert (answer.same, answer.compared) == (0, 6), "another answer is not counted as the same"


@pytest.mark.usefixtures("emulated")
def test_some_of_many_batches_are_compared_and_the_scales_come_from_the_first(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eight_bits, "COMPARED", 2)
    answer, seen = AnsweringInFp8(model, CPU, batches=6, around=lambda inner: lambda images: inner(images) + 0), []
    monkeypatch.setattr(answer, "_exact", lambda images: seen.append(len(images)) or model(images))
    with torch.no_grad():
        for count in (3, 1, 1, 2, 1, 1):
            answer(torch.randn(count, 3, 32, 32))
    assert seen == [3, 2] and answer.compared == 5, "the first and the fourth of six"
    assert not any(isinstance(layer, Linear8) for layer in model.modules()), "the model itself stays"
