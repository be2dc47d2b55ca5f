import pytest
import torch
import torch.nn.functional as F

from vitral.build import create
from vitral.train.tasks.classify import Classify, cross_entropies, one_label, right_answers
from vitral.train.tasks.task import Learner

from .conftest import IMAGES, LABELS, LABELS_B, LOGITS, Table


def test_mixed_labels_are_the_mean_of_two_losses_by_lam():
    lam = torch.tensor([0.7, 0.4])
    outcome = Classify(one_label(0.1)).losses(Table(LOGITS), IMAGES, LABELS, LABELS_B, lam, None)
    one = F.cross_entropy(LOGITS, LABELS, label_smoothing=0.1, reduction="none")
    two = F.cross_entropy(LOGITS, LABELS_B, label_smoothing=0.1, reduction="none")
    assert outcome.loss.item() == pytest.approx((lam * one + (1 - lam) * two).mean().item())
    assert outcome.correct.item() == pytest.approx(0.7 + 0.6)
    assert right_answers(LOGITS, LABELS, None, None).item() == 1


def test_class_weights_weigh_each_picture():
    weights = torch.tensor([0.5, 1.0, 2.0])
    plain = F.cross_entropy(LOGITS, LABELS, reduction="none")
    assert cross_entropies(LOGITS, LABELS, None, None, 0.0, weights).mean().item() == pytest.approx(
        ((plain * weights[LABELS]).mean()).item()
    )
    lam, other = torch.tensor([0.7, 0.4]), F.cross_entropy(LOGITS, LABELS_B, reduction="none")
    mixed = lam * plain * weights[LABELS] + (1 - lam) * other * weights[LABELS_B]
    assert cross_entropies(LOGITS, LABELS, LABELS_B, lam, 0.0, weights).mean().item() == pytest.approx(mixed.mean().item())


def test_left_out_patches_reach_the_model():
    model = create("tiny", classes=3, width=12, mlp_width=12, heads=2)
    seen: list[int] = []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
    learner = Learner(model, Classify(one_label()))
    learner(torch.randn(2, 3, 32, 32), LABELS, None, None, 0.25)
    learner(torch.randn(2, 3, 32, 32), LABELS)
    assert seen == [17, 65]
