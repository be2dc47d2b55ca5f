"""Several labels a picture: what is minimised, what is counted, and how mixed pictures, smoothing and weights enter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitral.config import TrainConfig
from vitral.train.tasks import task_of
from vitral.train.tasks.multi_label import multi_label_loss

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [-3.0, 1.0, 0.0]])
LABELS = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])


def outcome(smoothing: float = 0.0, weights: torch.Tensor | None = None, labels_b=None, lam=None):
    return multi_label_loss(smoothing, weights)(LOGITS, LABELS, labels_b, lam)


def test_each_class_is_a_question_of_its_own():
    by_hand = -(LABELS * LOGITS.sigmoid().log() + (1 - LABELS) * (1 - LOGITS.sigmoid()).log()).mean()
    loss, correct = outcome()
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-6)
    assert correct.item() == 1, "the first picture's surest class is one of its labels, the second's is not"
    chosen = task_of(TrainConfig(), multi_label=True).losses(nn.Identity(), LOGITS, LABELS, None, None, None)
    assert chosen.loss == loss


def test_mixed_pictures_have_both_labels_by_their_weight():
    other, lam = LABELS.flip(0), torch.tensor([0.75, 0.75])
    targets = 0.75 * LABELS + 0.25 * other
    mixed = outcome(labels_b=other, lam=lam)
    assert mixed.loss.item() == pytest.approx(F.binary_cross_entropy_with_logits(LOGITS, targets).item(), rel=1e-6)
    assert mixed.correct.item() == pytest.approx(0.75)
    alone = outcome(labels_b=LABELS, lam=torch.ones(2))
    assert torch.equal(alone.loss, outcome().loss), "all of the first picture is the same number as no other one"


def test_smoothing_draws_to_one_half_and_weights_count_what_is_there():
    softened = F.binary_cross_entropy_with_logits(LOGITS, 0.8 * LABELS + 0.1)
    assert outcome(smoothing=0.2).loss.item() == pytest.approx(softened.item(), rel=1e-6)
    heavy = outcome(weights=torch.tensor([1.0, 1.0, 5.0])).loss - outcome().loss
    there = -F.logsigmoid(LOGITS[:, 2]).sum() * 4 / 6  # both pictures have the third label
    assert heavy.item() == pytest.approx(there.item(), rel=1e-5)
