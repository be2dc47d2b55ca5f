"""The Gaussian test against its definition and against distributions that it must tell apart; what the loss pulls and what it pushes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from vitral.build import create
from vitral.config import PretrainConfig
from vitral.train.tasks import method_of
from vitral.train.tasks.lejepa import LeJEPA
from vitral.train.tasks.projection import BatchNorm, Projection
from vitral.train.tasks.task import Learner, learnable

CONFIG = PretrainConfig(projection=8, projection_hidden=16, directions=64, global_views=2, local_views=1)


def test_the_statistic_is_epps_and_pulleys_integral() -> None:
    """With one number an embedding, every direction is ± that number: N ∫ |φ_N(t) − exp(−t²/2)|² exp(−t²/2) dt."""
    values = torch.randn(40, 1, 1, generator=torch.Generator().manual_seed(0)) * 1.5 + 0.3
    x = values.double().numpy().ravel()

    def integrand(t: float) -> float:
        gaussian = np.exp(-t * t / 2)
        return float(np.abs(np.exp(1j * t * x).mean() - gaussian) ** 2 * gaussian)

    wanted = 40 * quad(integrand, -3, 3)[0]
    assert LeJEPA(dataclasses.replace(CONFIG, projection=1), 4).normality(values).item() == pytest.approx(wanted, rel=2e-3)


def test_gaussian_embeddings_pass_and_others_do_not() -> None:
    torch.manual_seed(0)
    method, normal = LeJEPA(CONFIG, 4), torch.randn(512, 2, 8)
    flat = normal.clone()
    flat[..., 4:] = 0
    others = {
        "one point": torch.zeros(512, 2, 8),
        "too wide": 2 * normal,
        "shifted": normal + 1,
        "half of the directions": flat,
        "two points": normal[..., :1].sign().expand_as(normal),
    }
    passes = method.normality(normal).item()
    assert passes < 2 and dict.fromkeys(others, True) == {name: method.normality(x).item() > 3 * passes for name, x in others.items()}


def test_in_a_small_batch_the_test_weighs_as_in_one_of_128() -> None:
    """Else the pull wins all but one or two directions: what is asked of the embeddings must not depend on what fits into memory."""
    torch.manual_seed(0)
    model = create("tiny", classes=0, width=12, mlp_width=12, heads=2)
    method = LeJEPA(dataclasses.replace(CONFIG, gaussian_weight=0.5), 12)
    # Every embedding in one point: what the test says of it grows with their number alone.
    method.projection.forward = lambda features: torch.zeros(len(features), 8)  # type: ignore[method-assign]
    losses = {count: method.loss(model, torch.zeros(count, 1, 3, 32, 32), None).item() for count in (8, 128, 256)}
    assert losses[8] == pytest.approx(losses[128], rel=1e-5) and losses[256] == pytest.approx(2 * losses[128], rel=1e-5)


def test_equal_views_cost_no_pull_and_the_target_is_the_global_views_mean() -> None:
    torch.manual_seed(0)
    model = create("tiny", classes=0, width=12, mlp_width=12, heads=2)
    method = method_of(dataclasses.replace(CONFIG, gaussian_weight=0.0), model)
    assert isinstance(method, LeJEPA)
    images = torch.randn(6, 3, 3, 32, 32)
    same = images[:, :1].expand(-1, 3, -1, -1, -1)
    assert method.losses(model, same, None, None, None, None).loss.item() == pytest.approx(0, abs=1e-9)
    embeddings = method.embed(model, images.flatten(0, 1)).unflatten(0, (6, 3))
    wanted = (embeddings - embeddings[:, :2].mean(1, keepdim=True)).square().mean()
    assert method.losses(model, images, None, None, None, None).loss.item() == pytest.approx(wanted.item(), rel=1e-4)


def test_model_and_projection_learn_and_left_out_patches_reach_the_model() -> None:
    torch.manual_seed(0)
    model = create("tiny", classes=0, width=12, mlp_width=12, heads=2)
    method, seen = method_of(CONFIG, model), []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: seen.append(tuple(inputs[0].shape[:2])))
    Learner(model, method)(torch.randn(4, 3, 3, 32, 32), torch.zeros(4), None, None, 0.25).loss.backward()
    assert seen == [(12, 17)]
    assert all(value.grad is not None for value in learnable(model, method).values())
    assert {name for name in learnable(model, method) if name.startswith("task.projection.")}


def test_batch_norm_is_pytorchs_while_learning() -> None:
    torch.manual_seed(0)
    ours, theirs, values = BatchNorm(5), torch.nn.BatchNorm1d(5), torch.randn(32, 5) * 3 + 1
    assert torch.allclose(ours(values), theirs(values), atol=1e-5)
    assert Projection(5, 7, 3)(values).shape == (32, 3)
