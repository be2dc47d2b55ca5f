"""Each test of a map against numbers that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import vitral
from vitral.look import faithfulness as judge


def test_rank_correlation_is_spearmans() -> None:
    draw = np.random.default_rng(0)
    first, second = draw.integers(0, 6, (5, 4)), draw.integers(0, 6, (5, 4))
    assert judge.rank_correlation(first, second) == pytest.approx(stats.spearmanr(first.ravel(), second.ravel()).statistic)
    assert judge.rank_correlation(first, np.ones((5, 4))) == 0.0


def test_found_is_the_area_under_the_roc_curve() -> None:
    values = np.array([[3.0, 1.0], [2.0, 2.0]])
    inside = np.array([[False, True], [True, False]])
    pairs = [(1.0, 3.0), (1.0, 2.0), (2.0, 3.0), (2.0, 2.0)]
    assert judge.auroc_inside(values, inside) == pytest.approx(np.mean([(a > b) + 0.5 * (a == b) for a, b in pairs]))
    assert judge.auroc_inside(inside.astype(float), inside) == 1.0
    assert np.isnan(judge.auroc_inside(values, np.zeros((2, 2), bool)))


def test_weight_inside_counts_what_speaks_for_it() -> None:
    values = np.array([[3.0, 1.0], [-5.0, 0.0]])
    assert judge.share_inside(values, np.array([[True, False], [True, False]])) == 0.75
    assert judge.share_inside(-np.ones((2, 2)), np.array([[True, False], [False, False]])) == 0.25


def test_on_grid_keeps_the_mean() -> None:
    values = np.arange(24.0).reshape(4, 6)
    np.testing.assert_allclose(judge.on_grid(values, (2, 3)), values.reshape(2, 2, 3, 2).mean(axis=(1, 3)))
    assert judge.on_grid(values, (3, 5)).mean() == pytest.approx(values.mean())
    assert judge.on_grid(values, (4, 6)) is values


def test_salience_order_by_hand() -> None:
    # Pairs (0,1), (0,2), (1,2) with weights 2, 5, 3; the falls agree with the first two.
    assert judge._coefficient([3.0, 1.0, 2.0], [6.0, 4.0, 1.0]) == pytest.approx((2 + 5 - 3) / 10)
    assert judge._coefficient([3.0, 2.0, 1.0], [6.0, 4.0, 1.0]) == 1.0
    assert judge._coefficient([1.0, 2.0, 3.0], [6.0, 4.0, 1.0]) == -1.0
    assert judge._coefficient([1.0, 2.0], [1.0, 1.0]) == 0.0


@torch.no_grad()
def test_curves_equal_removing_by_hand(make, images) -> None:
    model = make().float()
    image, other = images(model).float()
    order = np.random.default_rng(1).permutation(16)
    for removal in ("mean", "other"):
        curve = judge.deletion_insertion(model, image, other, 3, order[None], (4, 4), removal)[0]
        filling = image.mean(dim=(1, 2), keepdim=True).expand_as(image) if removal == "mean" else other
        for place, count in enumerate((1, 2, 4, 8, 12), 1):
            deleted, kept = image.clone(), filling.clone()
            for patch in order[:count]:
                at = (slice(None), slice(patch // 4 * 4, patch // 4 * 4 + 4), slice(patch % 4 * 4, patch % 4 * 4 + 4))
                deleted[at], kept[at] = filling[at], image[at]
            expected = model(torch.stack([deleted, kept])).softmax(1)[:, 3]
            np.testing.assert_allclose(curve[:, place], expected.numpy(), atol=1e-5)
        whole, nothing = model(torch.stack([image, filling])).softmax(1)[:, 3].tolist()
        np.testing.assert_allclose(curve[:, [0, -1]], [[whole, nothing], [nothing, whole]], atol=1e-6)


@torch.no_grad()
def test_a_dropped_token_is_as_if_nobody_could_look_at_it(make, images) -> None:
    model = make()
    image = images(model)[0]
    kept = np.array([[0, 3, 9]])

    def hide(scores: torch.Tensor, _: str) -> torch.Tensor:
        seen = torch.tensor([True, *(patch in kept[0] for patch in range(16))])
        return scores * seen / (scores * seen).sum(dim=-1, keepdim=True)

    hidden = vitral.watch(model, image[None], edits={"blocks.*.attention.weights": hide}).logits.softmax(1)[0, 2]
    assert judge.scores(model, image[None], 2, kept)[0] == pytest.approx(float(hidden), abs=1e-6)
    assert judge.removals_of(model) == judge._REMOVALS
    assert judge.removals_of(vitral.create("cnn")) == judge.removals_of(make(positions="rotary", heads=2, width=24)) == judge._REMOVALS[:-1]


@torch.no_grad()
def test_scores_are_quick_and_nearly_the_same(make, images, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make().float()
    image, kept = images(model).float()[:1], np.array([[0, 3, 9]])
    exact = [judge.scores(model, image, 2), judge.scores(model, image, 2, kept)]
    for name in ("has_bf16", "worth_bf16"):
        monkeypatch.setattr(f"vitral.look.rerun.{name}", lambda _: True)
    quick = [judge.scores(model, image, 2), judge.scores(model, image, 2, kept)]
    assert (np.array(quick) != np.array(exact)).all(), "in bf16"
    np.testing.assert_allclose(quick, exact, atol=0.02)


def test_the_gain_turns_round_with_the_order(make, images) -> None:
    """Insertion in one order is deletion in the other, read backwards: an order and its reverse gain as much as they lose."""
    model = make().float()
    image, other = images(model).float()
    order = np.random.default_rng(0).permutation(16)
    even = judge.deletion_insertion(model, image, other, 1, np.stack([order, order[::-1]]), (4, 4), "mean")
    np.testing.assert_allclose(even[0, 1, [3, 4, 5]], even[1, 0, [5, 4, 3]], atol=1e-6)  # 4, 8 and 12 of 16
    assert np.abs(judge.gain(even)).max() <= 1.0
    np.testing.assert_allclose(judge.gain(even - 7, any_sign=True), judge.gain(even, any_sign=True))  # an output has no zero
    assert np.abs(judge.gain(even - 7, any_sign=True)).max() <= 1.0
    assert judge.gain(np.array([[[1, 0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1, 1.0]]]))[0] == pytest.approx(1 - 1 / 16)


def test_a_permuted_model_has_the_same_numbers_in_other_places(make) -> None:
    model = make()
    everything, top = judge.with_permuted_weights(model), judge.with_permuted_weights(model, 1)
    for name, parameter in model.named_parameters():
        other = dict(everything.named_parameters())[name]
        torch.testing.assert_close(other.flatten().sort().values, parameter.flatten().sort().values)
        assert parameter.numel() < 3 or not torch.equal(other, parameter)
        moved = not torch.equal(dict(top.named_parameters())[name], parameter)
        assert moved == name.startswith(("blocks.2.", "head."))
    head = judge.with_permuted_weights(model, 0)
    assert torch.equal(head.blocks[2].mlp.expand.weight, model.blocks[2].mlp.expand.weight)
    assert not torch.equal(head.head.linear.weight, model.head.linear.weight)
