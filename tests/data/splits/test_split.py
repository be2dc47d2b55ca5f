"""Splits are seeded, class-balanced and nested; what cannot be trained on is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitral.base.errors import DataError
from vitral.data.images.preprocess import Preprocess
from vitral.data.sources.protocol import ArrayReader
from vitral.data.splits.split import Split, balanced_order, carve, check


def make(labels: np.ndarray, classes: int) -> Split:
    pixels = np.arange(len(labels), dtype=np.uint8)[:, None, None, None].repeat(4, 2).repeat(4, 3)
    names = tuple(map(str, range(classes)))
    return Split("train", ArrayReader(pixels, "made"), np.arange(len(labels)), labels, names, Preprocess((4, 4), 1))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.floats(0.01, 0.9), st.integers(0, 99))
def test_carved_share_is_disjoint_balanced_and_whole(counts: list[int], share: float, seed: int) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    kept, held = carve(labels, share, seed, "validation")
    assert sorted(np.concatenate([kept, held]).tolist()) == list(range(len(labels)))
    for label, count in enumerate(counts):
        taken = int((labels[held] == label).sum())
        assert abs(taken - count * share) <= 1 and taken < count
        assert taken >= 1 or count == 1
    again = carve(labels, share, seed, "validation")
    assert np.array_equal(again[1], held)


def test_what_is_left_over_goes_to_the_classes_that_lost_most_by_rounding() -> None:
    labels = np.repeat([0, 1], [19, 14])  # a tenth is 1.9 and 1.4, together 3
    assert np.bincount(labels[carve(labels, 0.1, 0, "validation")[1]]).tolist() == [2, 1]


def test_other_seeds_and_purposes_carve_others() -> None:
    labels = np.repeat(np.arange(4), 50)
    first = carve(labels, 0.2, 0, "validation")[1]
    assert not np.array_equal(first, carve(labels, 0.2, 1, "validation")[1])
    assert not np.array_equal(first, carve(labels, 0.2, 0, "test")[1])
    assert not len(carve(labels, 0, 0, "validation")[1])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=5), st.integers(0, 9))
def test_subsets_are_nested_and_balanced(counts: list[int], seed: int) -> None:
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(len(counts)), counts))
    split = make(labels, len(counts))
    before: set[int] = set()
    for size in range(1, len(labels) + 1):
        chosen = split.balanced_subset(size, seed)
        now = set(chosen.indices.tolist())
        assert len(now) == size and before <= now
        before = now
        for label, count in enumerate(counts):
            assert abs(int((chosen.labels == label).sum()) - size * count / len(labels)) <= 1 + len(counts) / 2
        if size >= len(counts):
            assert len(np.unique(chosen.labels)) == len(counts)
    assert len(balanced_order(labels, seed)) == len(labels)


def test_prepared_for_another_model_only_what_must_be_is_read_again() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 8, 8), dtype=np.uint8)
    split = Split(
        "train", ArrayReader(pixels, "five"), np.arange(4), np.zeros(4, int), ("a",), Preprocess((8, 8), 5, tuple(np.arange(5) / 9))
    )
    read = split.pixels()
    assert split.with_preprocess(Preprocess((8, 8), 5, (0.1,), (0.2,))).pixels() is read
    assert split.with_preprocess(Preprocess((6, 6), 5)).pixels().shape == (4, 5, 6, 6)
    assert split.with_preprocess(Preprocess((8, 8), 3)).preprocess.channels == 3


def test_subset_carries_pixels_and_labels() -> None:
    split = make(np.array([0, 1, 0, 1, 1]), 2)
    split.pixels()
    split.bad.update({0: "cut off", 3: "not a picture"})
    some = split.subset(np.array([4, 0]))
    assert some.bad == {1: "cut off"}, "unreadable pictures move with their positions"
    assert some.pixels()[:, 0, 0, 0].tolist() == [4, 0] and some.labels.tolist() == [1, 0]
    assert np.asarray(some.picture(0)).max() == 4
    with pytest.raises(DataError, match="out of 5"):
        split.balanced_subset(6, 0)


def test_class_weights_make_each_class_count_alike() -> None:
    split = make(np.array([0] * 8 + [1] * 2), 3)
    weights = split.class_weights()
    assert weights[2] == 0
    assert weights[torch.from_numpy(split.labels)].mean() == pytest.approx(1)
    assert 8 * weights[0] == pytest.approx(2 * weights[1].item())
    assert split.imbalance() == 4


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "no pictures"),
        ([0], "one picture"),
        ([1, 1, 1], r"one class only \(dog\)"),
        ([0, 1, 2], "label 2, but its 2 classes are 0 to 1"),
        ([0, -1, 1], "label -1"),
    ],
)
def test_refused_before_training(labels: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check(np.array(labels, np.int64), ("cat", "dog"), "pets")
