"""The loss against its definition, written out; the teacher and the centre move as the paper says."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from vitral.build import create
from vitral.config import PretrainConfig
from vitral.train.tasks import method_of
from vitral.train.tasks.dino import DINO
from vitral.train.tasks.task import learnable

CONFIG = PretrainConfig(
    method="dino", projection=8, projection_hidden=16, prototypes=12, global_views=2, local_views=1, teacher_momentum=0.9
)


def made(**changes: Any) -> tuple[torch.nn.Module, DINO]:
    torch.manual_seed(0)
    model = create("tiny", classes=0, width=12, mlp_width=12, heads=2)
    method = method_of(dataclasses.replace(CONFIG, **changes), model)  # type: ignore[arg-type]
    assert isinstance(method, DINO)
    return model, method


def test_the_loss_is_the_mean_cross_entropy_of_pairs_of_different_views() -> None:
    model, method = made(head_norm="none")
    method.centre.normal_()
    images = torch.randn(5, 3, 3, 32, 32)
    found = method.losses(model, images, None, None, None, None).loss.item()
    student = [method.head(model(images[:, v])) / 0.1 for v in range(3)]
    teacher = [((method.teacher_head(method.teacher(images[:, g])) - method.centre) / 0.04).softmax(-1) for g in range(2)]
    pairs = [-(teacher[g] * student[v].log_softmax(-1)).sum(-1).mean() for g in range(2) for v in range(3) if g != v]
    assert found == pytest.approx((sum(pairs) / len(pairs)).item(), rel=1e-4)


def test_teacher_and_centre_follow_and_nothing_of_them_learns() -> None:
    model, method = made(centre_momentum=0.75)
    before = [value.clone() for value in method.teacher.parameters()]
    with torch.no_grad():
        for value in model.parameters():
            value.add_(1.0)
    images = torch.randn(4, 3, 3, 32, 32)
    method.losses(model, images, None, None, None, None)
    answers = method.teacher_head(method.teacher(images[:, :2].flatten(0, 1))).mean(0)
    method.begin(0.0)
    method.after(model)
    for old, now, student in zip(before, method.teacher.parameters(), model.parameters(), strict=True):
        assert torch.allclose(now, 0.9 * old + 0.1 * student, atol=1e-6)
    assert torch.allclose(method.centre, 0.25 * answers, atol=1e-6)
    method.begin(1.0)
    assert method.momentum.item() == 1.0
    assert not any(value.requires_grad for name, value in learnable(model, method).items() if "teacher" in name)


def test_entropies_are_shares_of_the_largest() -> None:
    _, method = made()
    with torch.no_grad():
        method.teacher_head.prototypes.zero_()  # every answer alike, centred and sharpened
    figures = method.figures(torch.randn(4, 3, 3, 32, 32))
    assert figures["teacher_entropy"].item() == pytest.approx(1, abs=1e-5) == figures["teacher_entropy_of_mean"].item()
    assert math.isfinite(figures["teacher_entropy"].item())


def test_over_a_run_the_temperature_rises_and_prototypes_are_let_go() -> None:
    model, method = made(target_warmup=0.5, prototypes_frozen=0.1)
    images, seen = torch.randn(4, 3, 3, 32, 32), []
    for progress in (0.0, 0.25, 0.5, 1.0):
        method.begin(progress)
        method.zero_grad()
        method.losses(model, images, None, None, None, None).loss.backward()
        gradient = method.head.prototypes.grad
        assert gradient is not None and bool(gradient.any()) == (progress >= 0.1)
        seen.append(method.temperature.item())
    assert seen == pytest.approx([0.04, 0.055, 0.07, 0.07])


@pytest.mark.parametrize(("norm", "apart"), [("batch", True), ("none", False)])
def test_a_normalised_head_tells_apart_what_shares_most(norm: str, apart: bool) -> None:
    """Features that have almost everything in common, as those of an untrained model with positions of size 1."""
    _, method = made(head_norm=norm)
    answers = method.head(torch.randn(1, 12) + 0.01 * torch.randn(32, 12))
    assert (answers.std(0).mean() > 0.1).item() == apart
