import pytest
import torch
import torch.nn.functional as F

from vitral.build import create
from vitral.train.tasks.distil import distillation
from vitral.train.tasks.task import Learner

from .conftest import IMAGES, LABELS, LOGITS, Table


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
