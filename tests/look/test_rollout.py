"""Rollout against its definition, written out slowly."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import vitral
from vitral import look
from vitral.look.rollout import RunningRollout, _drop_weakest


def slow_rollout(maps: list[torch.Tensor], heads: str, discard: float) -> np.ndarray:
    total: np.ndarray | None = None
    for block in maps:
        weights = block.detach().numpy()
        count = weights.shape[1]
        joined = np.zeros((count, count))
        for i in range(count):
            for j in range(count):
                column = weights[:, i, j]
                joined[i, j] = {"mean": column.sum() / len(column), "min": min(column), "max": max(column)}[heads]
        if discard:
            order = sorted(range(count * count), key=lambda k: joined[k // count, k % count])
            for k in order[: int(discard * count * count)]:
                joined[k // count, k % count] = 0
        step = joined + np.eye(count)
        for i in range(count):
            step[i] /= step[i].sum()
        total = step if total is None else step @ total
    assert total is not None
    return total


def expected(model, maps, heads="mean", discard=0.0) -> np.ndarray:
    total, prefix = slow_rollout(maps, heads, discard), model.config.prefix
    row = total[0] if model.config.pool == "class" else total[prefix:].mean(axis=0)
    return row[prefix:].reshape(model.config.grid)


@pytest.mark.parametrize(("heads", "discard"), [("mean", 0.0), ("min", 0.0), ("max", 0.0), ("mean", 0.6)])
def test_equals_the_definition(any_model, images, forward, heads, discard) -> None:
    batch = images(any_model)
    tape = vitral.watch(any_model, batch)
    for item in range(2):
        maps, _ = forward(any_model, batch[item])
        heat = look.rollout(tape, item, heads=heads, discard=discard)
        assert np.abs(heat.grid - expected(any_model, maps, heads, discard)).max() <= 1e-6
        assert (heat.method, heat.item) == ("rollout", item)


def test_equals_the_definition_in_single_precision(make, images, forward) -> None:
    model = make()
    batch = images(model)
    maps, _ = forward(model, batch[1])
    heat = look.rollout(vitral.watch(model.float(), batch.float()), 1)
    assert np.abs(heat.grid - expected(model, maps)).max() <= 1e-6


@pytest.mark.parametrize("at_once", [2**24, 1])
def test_streaming_gives_the_same_and_stores_nothing(any_model, images, monkeypatch, at_once) -> None:
    monkeypatch.setattr(sys.modules["vitral.look.rollout"], "MOST_NUMBERS", at_once)
    batch = images(any_model, 3)
    tape = vitral.watch(any_model, batch)
    streamed = look.watch_rollout(any_model, batch, heads="max", discard=0.3)
    assert [heat.item for heat in streamed] == [0, 1, 2]
    for item, heat in enumerate(streamed):
        np.testing.assert_allclose(heat.grid, look.rollout(tape, item, heads="max", discard=0.3).grid, atol=1e-12)
    running = RunningRollout()
    bare = vitral.watch(any_model, batch, keep=["logits"], readers={"blocks.*.attention.weights": running})
    assert not [name for name in bare.names() if "attention" in name]
    assert running.product is not None
    torch.testing.assert_close(running.product.sum(dim=-1), torch.ones(3, any_model.config.tokens, dtype=torch.float64))


def test_a_tape_that_kept_too_little_is_watched_again(make, images) -> None:
    model = make()
    batch = images(model)
    whole = look.rollout(vitral.watch(model, batch), 1)
    for keep in ({"rows": "class"}, {"heads": [1]}, {"keep": ["logits"]}, {"blocks": [0]}):
        again = look.rollout(vitral.watch(model, batch, **keep), 1)
        np.testing.assert_allclose(again.grid, whole.grid, atol=1e-12)
        assert again.item == 1


def test_edits_are_kept_when_watched_again(make, images) -> None:
    model = make()
    batch = images(model)

    def even(value, name):
        return torch.full_like(value, 1 / value.shape[-1])

    edited = vitral.watch(model, batch, keep=["logits"], edits={"blocks.*.attention.weights": even})
    grid = look.rollout(edited).grid
    np.testing.assert_allclose(grid, grid.mean(), atol=1e-12)


def test_start_is_said(make, images) -> None:
    model = make(class_token=False, pool="mean")
    tape = vitral.watch(model, images(model))
    assert "no class token" in look.rollout(tape).note
    assert look.rollout(tape, start="mean").note
    patch = look.rollout(tape, start=(1, 2))
    assert "row 1, column 2" in patch.note
    np.testing.assert_allclose(patch.grid, look.rollout(tape, start=1 * 4 + 2).grid)
    assert look.rollout(vitral.watch(make(), images(model))).note == ""


def test_drop_weakest_keeps_the_strongest() -> None:
    matrix = torch.tensor([[[0.1, 0.9], [0.4, 0.6]]])
    assert _drop_weakest(matrix, 0.5).tolist() == [[[0.0, pytest.approx(0.9)], [0.0, pytest.approx(0.6)]]]
    assert _drop_weakest(matrix, 0.0) is matrix


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"heads": "sum"}, "unknown way to join heads 'sum'"),
        ({"discard": 1.0}, "discard = 1.0"),
        ({"start": "cls"}, "unknown start 'cls'"),
        ({"start": (9, 0)}, "patch (9, 0) does not exist"),
        ({"start": [1, 2, 3]}, "patch (1, 2, 3) does not exist"),
        ({"start": ["a", 1]}, "patch (a, 1) does not exist"),
        ({"start": 99}, "token 99 does not exist"),
        ({"start": "distillation"}, "no distillation token"),
        ({"item": 7}, "picture 7 does not exist"),
    ],
)
def test_bad_options_are_one_line(make, images, options, words) -> None:
    model = make()
    tape = vitral.watch(model, images(model))
    with pytest.raises(vitral.VitralError) as caught:
        look.rollout(tape, **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cnn_has_no_rollout() -> None:
    model = vitral.create("cnn")
    with pytest.raises(vitral.VitralError, match="cnn"):
        look.rollout(vitral.watch(model, torch.zeros(1, 3, 32, 32)))
    with pytest.raises(vitral.VitralError, match="cnn"):
        look.watch_rollout(model, torch.zeros(1, 3, 32, 32))
