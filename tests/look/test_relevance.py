"""Relevance against its definition; and a task whose answer lies in one known patch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral import look


def slow_steps(maps: list[torch.Tensor], score: torch.Tensor, sign: float = 1.0) -> list[np.ndarray]:
    slopes = torch.autograd.grad(score, maps, retain_graph=True)
    steps = []
    for weights, slope in zip(maps, slopes, strict=True):
        product = sign * weights.detach().numpy() * slope.numpy()
        steps.append(np.where(product > 0, product, 0).sum(axis=0) / len(product))
    return steps


def pick(model, total: np.ndarray) -> np.ndarray:
    prefix = model.config.prefix
    row = total[0] if model.config.pool == "class" else total[prefix:].mean(axis=0)
    return row[prefix:].reshape(model.config.grid)


def slow_relevance(model, maps, score, sign=1.0) -> np.ndarray:
    total = np.eye(maps[0].shape[-1])
    for step in slow_steps(maps, score, sign):
        total = total + step @ total
    return pick(model, total - np.eye(len(total)))


def slow_gradient_rollout(model, maps, score) -> np.ndarray:
    total = np.eye(maps[0].shape[-1])
    for step in slow_steps(maps, score):
        step = step + np.eye(len(step))
        total = (step / step.sum(axis=1, keepdims=True)) @ total
    return pick(model, total)


def test_equals_the_definition(any_model, images, forward) -> None:
    batch = images(any_model)
    tape = vitral.watch(any_model, batch, gradients=True)
    for item, target in ((0, None), (1, 3)):
        maps, logits = forward(any_model, batch[item])
        chosen = int(logits.argmax()) if target is None else target
        heat = look.relevance(tape, item, target)
        assert heat.target == chosen
        assert np.abs(heat.grid - slow_relevance(any_model, maps, logits[chosen])).max() <= 1e-6
        lower = look.relevance(tape, item, target, lower=True)
        assert np.abs(lower.grid - slow_relevance(any_model, maps, logits[chosen], -1.0)).max() <= 1e-6
        rolled = look.gradient_rollout(tape, item, target)
        assert np.abs(rolled.grid - slow_gradient_rollout(any_model, maps, logits[chosen])).max() <= 1e-6


def test_is_class_specific_and_needs_no_prepared_tape(make, images) -> None:
    model = make()
    batch = images(model)
    plain, prepared = vitral.watch(model, batch), vitral.watch(model, batch, gradients=True)
    first, second = (look.relevance(plain, 1, target) for target in (0, 1))
    assert np.abs(first.grid - second.grid).max() > 1e-3
    np.testing.assert_allclose(first.grid, look.relevance(prepared, 1, 0).grid, atol=1e-12)


def test_regression_output(make, images, forward) -> None:
    model = make(classes=1)
    batch = images(model)
    maps, logits = forward(model, batch[0])
    heat = look.relevance(vitral.watch(model, batch), 0)
    assert heat.target == 0
    assert np.abs(heat.grid - slow_relevance(model, maps, logits[0])).max() <= 1e-6


def test_bad_targets_are_one_line(make, images) -> None:
    model = make()
    tape = vitral.watch(model, images(model))
    with pytest.raises(vitral.VitralError, match="0 to 4"):
        look.relevance(tape, target=5)
    with pytest.raises(vitral.VitralError, match="names"):
        look.relevance(tape, target="cat")
    headless = make(classes=0)
    with pytest.raises(vitral.VitralError, match="no head"):
        look.relevance(vitral.watch(headless, images(headless)))


SIDE, PATCH, CLASSES = 24, 4, 4


def planted(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Noise with one patch that shows one of four patterns: (pictures, classes, places)."""
    patterns = torch.zeros(CLASSES, PATCH, PATCH)
    patterns[0, ::2], patterns[1, :, ::2], patterns[2, :2], patterns[3, :, :2] = 1, 1, 1, 1
    side = SIDE // PATCH
    labels = torch.randint(CLASSES, (count,), generator=generator)
    places = torch.randint(side * side, (count,), generator=generator)
    patches = 0.4 * torch.randn(count, side * side, PATCH, PATCH, generator=generator)
    patches[torch.arange(count), places] += 3 * patterns[labels] - 1.5
    pictures = patches.view(count, side, side, PATCH, PATCH).transpose(2, 3).reshape(count, 1, SIDE, SIDE)
    return pictures, labels, places


def test_maps_point_at_the_patch_that_decides() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    settings = {"image_size": SIDE, "patch_size": PATCH, "channels": 1, "classes": CLASSES}
    model = vitral.create("tiny", width=32, depth=2, heads=2, mlp_width=64, initialisation="zero", **settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    model.train()
    for _ in range(160):
        pictures, labels, _ = planted(64, generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
    pictures, labels, places = planted(100, generator)
    tape = vitral.watch(model, pictures, gradients=True)
    assert (tape.logits.argmax(dim=1) == labels).float().mean() >= 0.97

    def hits(grids: list[np.ndarray]) -> float:
        return float(np.mean([grid.argmax() == place for grid, place in zip(grids, places.tolist(), strict=True)]))

    shares = {name: hits([look.METHODS[name](tape, item).grid for item in range(100)]) for name in ("rollout", "relevance")}
    assert min(shares.values()) >= 0.9, shares
    chance = np.random.default_rng(0)
    assert hits([chance.random((SIDE // PATCH, SIDE // PATCH)) for _ in range(100)]) <= 0.15
