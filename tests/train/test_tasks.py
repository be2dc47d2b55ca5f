import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitral.build import create
from vitral.train.tasks import Learner, classification, cross_entropy, distillation, right_answers


class Table(nn.Module):
    """Logits that do not depend on the picture."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits


LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.0, 0.0]])
LABELS, LABELS_B = torch.tensor([0, 2]), torch.tensor([1, 1])
IMAGES = torch.zeros(2, 1, 2, 2)


def test_mixed_labels_are_the_mean_of_two_losses_by_lam():
    lam = torch.tensor([0.7, 0.4])
    outcome = classification(0.1)(Table(LOGITS), IMAGES, LABELS, LABELS_B, lam, None)
    one = F.cross_entropy(LOGITS, LABELS, label_smoothing=0.1, reduction="none")
    two = F.cross_entropy(LOGITS, LABELS_B, label_smoothing=0.1, reduction="none")
    assert outcome.loss.item() == pytest.approx((lam * one + (1 - lam) * two).mean().item())
    assert outcome.correct.item() == pytest.approx(0.7 + 0.6)
    assert right_answers(LOGITS, LABELS, None, None).item() == 1


def test_class_weights_weigh_each_picture():
    weights = torch.tensor([0.5, 1.0, 2.0])
    plain = F.cross_entropy(LOGITS, LABELS, reduction="none")
    assert cross_entropy(LOGITS, LABELS, None, None, 0.0, weights).item() == pytest.approx(((plain * weights[LABELS]).mean()).item())
    lam, other = torch.tensor([0.7, 0.4]), F.cross_entropy(LOGITS, LABELS_B, reduction="none")
    mixed = lam * plain * weights[LABELS] + (1 - lam) * other * weights[LABELS_B]
    assert cross_entropy(LOGITS, LABELS, LABELS_B, lam, 0.0, weights).item() == pytest.approx(mixed.mean().item())


def test_distilling_from_oneself_costs_nothing_and_from_another_pulls_towards_it():
    same = distillation(Table(LOGITS), 1.0, 2.0)(Table(LOGITS.clone()), IMAGES, LABELS, None, None, None)
    assert same.loss.item() == pytest.approx(0.0, abs=1e-6)
    student, task = Table(torch.zeros(2, 3)), distillation(Table(LOGITS), 1.0, 1.0)
    optimizer = torch.optim.SGD(student.parameters(), lr=2.0)
    for _ in range(200):
        optimizer.zero_grad()
        task(student, IMAGES, LABELS, None, None, None).loss.backward()
        optimizer.step()
    assert torch.allclose(student.logits.softmax(1), LOGITS.softmax(1), atol=1e-2)


def test_the_teacher_counts_by_its_weight_and_the_square_of_the_temperature():
    """Hinton and others (2015): softened gradients shrink with 1/T², and the factor brings them back; the mean is over pictures."""
    student, weight, temperature = torch.tensor([[0.0, 1.0, 0.5], [1.0, -1.0, 0.0]]), 0.7, 3.0
    loss = distillation(Table(LOGITS), weight, temperature)(Table(student), IMAGES, LABELS, None, None, None).loss
    wanted, given = (LOGITS / temperature).softmax(1), (student / temperature).softmax(1)
    divergence = (wanted * (wanted / given).log()).sum() / 2
    assert loss.item() == pytest.approx(((1 - weight) * F.cross_entropy(student, LABELS) + weight * temperature**2 * divergence).item())


def test_a_distillation_token_learns_from_the_teacher_and_the_class_token_from_the_labels():
    torch.manual_seed(0)
    model = create("tiny", distillation_token=True, classes=3, width=12, mlp_width=12, heads=2)
    learner = Learner(model, distillation(Table(LOGITS), 1.0, 1.0))
    learner(torch.randn(2, 3, 32, 32), LABELS).loss.backward()
    assert model.distillation_head.linear.weight.grad.abs().sum() > 0
    assert model.head.linear.weight.grad.abs().sum() == 0
    assert learner(torch.randn(2, 3, 32, 32)).shape == (2, 3)


def test_left_out_patches_reach_the_model():
    model = create("tiny", classes=3, width=12, mlp_width=12, heads=2)
    seen: list[int] = []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
    learner = Learner(model, classification())
    learner(torch.randn(2, 3, 32, 32), LABELS, None, None, 0.25)
    learner(torch.randn(2, 3, 32, 32), LABELS)
    assert seen == [17, 65]
