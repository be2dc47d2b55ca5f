"""Pictures, blocks, heads and tokens by number."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitral
from vitral import look
from vitral.base.errors import UsageError
from vitral.look.method import MAPS, NUMBERS


def test_numbers_of_numpy_are_numbers(make, images) -> None:
    model = make()
    tape = vitral.watch(model, images(model))
    found = look.attention(tape, block=np.int64(1), head=np.int64(2))
    np.testing.assert_array_equal(found.grid, look.attention(tape, block=1, head=2).grid)
    assert len(vitral.predict(model, images(model), top=np.int64(2))[0]) == 2
    with pytest.raises(UsageError, match="block True"):
        look.attention(tape, block=True)


def test_a_head_that_reads_class_token_and_mean_starts_from_the_token(make, images) -> None:
    model = make(pool="class+mean")
    tape = vitral.watch(model, images(model))
    assert "mean of the patches, too" in look.attention(tape).note
    np.testing.assert_array_equal(look.attention(tape).grid, look.attention(tape, start=0).grid)


@pytest.mark.parametrize("method", [look.attention, look.rollout, look.relevance, look.gradient_rollout, look.similarity])
def test_maps_know_the_patch_they_start_from(make, images, method) -> None:
    model = make()
    tape = vitral.watch(model, images(model))
    columns = tape.grid[1]
    assert method(tape, start=(1, columns - 1)).start == (1, columns - 1)
    assert method(tape, start=[1, columns - 1]).start == (1, columns - 1), "a list is taken as a tuple is"
    assert method(tape, start=tape.prefix + columns + 2).start == (1, 2), "a token by number is a patch, too"
    assert method(tape).start is method(tape, start="mean").start is method(tape, start=0).start is None


def test_two_heads_are_said_to_be_two(make, images) -> None:
    model = make(distillation_token=True)
    tape = vitral.watch(model, images(model))
    for method in (look.attention, look.rollout, look.relevance):
        assert "start = distillation shows the other head's" in method(tape).note
        assert "distillation token" in method(tape, start="distillation").note


@pytest.mark.parametrize(
    "method", [method.function for method in (*MAPS, *NUMBERS) if method.name not in ("position_similarity", "filters")]
)
@pytest.mark.parametrize("given", ["cat.jpg", torch.zeros(1, 3, 16, 16)], ids=["path", "tensor"])
def test_what_is_no_tape_is_refused_by_every_method_with_how_to_make_one(method, given) -> None:
    with pytest.raises(UsageError, match=r"vitral\.watch"):
        method(given)
