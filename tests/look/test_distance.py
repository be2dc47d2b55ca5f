"""Attention distance and entropy: closed forms by hand, then the definition written out slowly."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import vitral
from vitral import look
from vitral.look.distance import MEASURES, distances
from vitral.presets.models import model as config_of

ROWS, COLUMNS, STEP = 3, 5, 4


def config(prefix: int):
    return config_of("tiny", image_size=(ROWS * STEP, COLUMNS * STEP), patch_size=STEP, registers=prefix, class_token=False, pool="mean")


def weights(patches: np.ndarray, prefix: int) -> torch.Tensor:
    """Hand-made attention between patches; the tokens before them take half of every row."""
    count = len(patches)
    whole = np.zeros((count + prefix, count + prefix))
    whole[prefix:, prefix:] = patches * (0.5 if prefix else 1)
    whole[prefix:, :prefix] = 0.5 / max(prefix, 1)
    whole[:prefix] = 1 / (count + prefix)
    return torch.tensor(whole)[None, None]


@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_closed_forms(prefix: int) -> None:
    count = ROWS * COLUMNS
    measure = MEASURES["distance"]
    assert measure(weights(np.eye(count), prefix), config(prefix)) == pytest.approx(0, abs=1e-12)
    even = measure(weights(np.full((count, count), 1 / count), prefix), config(prefix))
    places = [(r * STEP, c * STEP) for r in range(ROWS) for c in range(COLUMNS)]
    assert even == pytest.approx(sum(math.dist(a, b) for a in places for b in places) / count**2, abs=1e-9)
    for shift in (1, 2):
        moved = np.zeros((count, count))
        for row in range(ROWS):
            for column in range(COLUMNS):
                target = column + shift if column + shift < COLUMNS else column - shift
                moved[row * COLUMNS + column, row * COLUMNS + target] = 1
        assert measure(weights(moved, prefix), config(prefix)) == pytest.approx(shift * STEP, abs=1e-12)
    down = np.zeros((count, count))
    for row in range(ROWS):
        for column in range(COLUMNS):
            down[row * COLUMNS + column, (row + 1 if row + 1 < ROWS else row - 1) * COLUMNS + column] = 1
    assert measure(weights(down, prefix), config(prefix)) == pytest.approx(STEP, abs=1e-12)


def test_entropy_closed_forms() -> None:
    count = ROWS * COLUMNS
    measure = MEASURES["entropy"]
    assert measure(weights(np.eye(count), 0), config(0)) == pytest.approx(0, abs=1e-12)
    assert measure(weights(np.full((count, count), 1 / count), 0), config(0)) == pytest.approx(math.log2(count))


def test_equals_the_definition(any_model, images, forward) -> None:
    batch = images(any_model)
    found = look.distance(vitral.watch(any_model, batch))
    widths = look.entropy(vitral.watch(any_model, batch))
    shape, prefix = any_model.config.grid, any_model.config.prefix
    down, across = (size / cells for size, cells in zip(any_model.config.image_size, shape, strict=True))
    for item in range(2):
        maps, _ = forward(any_model, batch[item])
        for block, each in enumerate(maps):
            for head, matrix in enumerate(each.detach().numpy()):
                means, bits = [], []
                for i in range(shape[0] * shape[1]):
                    total = near = 0.0
                    for j in range(shape[0] * shape[1]):
                        weight = matrix[prefix + i, prefix + j]
                        rows, columns = i // shape[1] - j // shape[1], i % shape[1] - j % shape[1]
                        near += weight * math.hypot(rows * down, columns * across)
                        total += weight
                    means.append(near / total)
                for row in matrix:
                    bits.append(-sum(value * math.log2(value) for value in row if value > 0))
                assert abs(found.each[item, block, head] - sum(means) / len(means)) <= 1e-6
                assert abs(widths.each[item, block, head] - sum(bits) / len(bits)) <= 1e-6


def test_streaming_over_batches_gives_the_same(make, images) -> None:
    model = make(registers=1)
    batch = images(model, 5)
    streamed = look.watch_heads(model, batch, batch=2)
    tape = vitral.watch(model, batch)
    np.testing.assert_allclose(streamed["distance"].each, look.distance(tape).each, atol=1e-12)
    np.testing.assert_allclose(streamed["entropy"].each, look.entropy(tape).each, atol=1e-12)
    assert streamed["distance"].values.shape == (3, 3)
    assert look.distance(tape, 2).each.shape == (1, 3, 3)
    assert streamed["distance"].reference == pytest.approx(distances(model.config).mean())
    axes = streamed["distance"].draw().axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), streamed["distance"].values.mean(axis=1))
    assert axes.lines[1].get_ydata()[0] == streamed["distance"].reference and axes.get_ylabel() == "mean attention distance (pixels)"
    assert axes.figure.get_suptitle() == "Mean attention distance per head, mean of 5 pictures"


def test_bad_input_is_one_line() -> None:
    with pytest.raises(vitral.VitralError, match="cnn"):
        look.watch_heads(vitral.create("cnn"), torch.zeros(1, 3, 32, 32))
    with pytest.raises(vitral.VitralError, match="pictures"):
        look.watch_heads(vitral.create("tiny"), [])


def test_heads_of_a_compiled_model(make, images) -> None:
    model = make()
    plain, compiled = (look.watch_heads(one, images(model)) for one in (model, torch.compile(model, backend="eager")))
    for name, found in plain.items():
        np.testing.assert_allclose(compiled[name].values, found.values, atol=1e-9)


def test_an_edited_batch_is_watched_again_once(make, images) -> None:
    model = make()
    batch = images(model, 4)
    whole = vitral.watch(model, batch, edits={"blocks.0.mlp.output": lambda value, _: 0 * value})
    lean = vitral.watch(model, batch, keep=["logits"], edits=whole.edits)
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    np.testing.assert_allclose(look.distance(lean).values, look.distance(whole).values, atol=1e-12)
    assert len(passes) == 1
