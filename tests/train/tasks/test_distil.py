import pytest
import torch
import torch.nn.functional as F

from vitral.base.errors import ConfigError
from vitral.build import create
from vitral.config import TrainConfig
from vitral.data.images.preprocess import Preprocess
from vitral.train.tasks.classify import one_label
from vitral.train.tasks.distil import Distillation, FeatureDistillation
from vitral.train.tasks.task import Learner
from vitral.train.teacher import Teacher

from .conftest import IMAGES, LABELS, LOGITS, Table


def taught(teacher: torch.nn.Module, share: float, temperature: float) -> Distillation:
    return Distillation(teacher, TrainConfig(teacher_weight=share, teacher_temperature=temperature))


def test_distilling_from_oneself_costs_nothing_and_from_another_pulls_towards_it():
    same = taught(Table(LOGITS), 1.0, 2.0).losses(Table(LOGITS.clone()), IMAGES, LABELS, None, None, None)
    assert same.loss.item() == pytest.approx(0.0, abs=1e-6)
    student, task = Table(torch.zeros(2, 3)), taught(Table(LOGITS), 1.0, 1.0)
    optimizer = torch.optim.SGD(student.parameters(), lr=2.0)
    for _ in range(200):
        optimizer.zero_grad()
        task.losses(student, IMAGES, LABELS, None, None, None).loss.backward()
        optimizer.step()
    assert torch.allclose(student.logits.softmax(1), LOGITS.softmax(1), atol=1e-2)


def test_the_teacher_counts_by_its_weight_and_the_square_of_the_temperature():
    """Hinton and others (2015): softened gradients shrink with 1/T², and the factor brings them back; the mean is over pictures."""
    student, weight, temperature = torch.tensor([[0.0, 1.0, 0.5], [1.0, -1.0, 0.0]]), 0.7, 3.0
    loss = taught(Table(LOGITS), weight, temperature).losses(Table(student), IMAGES, LABELS, None, None, None).loss
    wanted, given = (LOGITS / temperature).softmax(1), (student / temperature).softmax(1)
    divergence = (wanted * (wanted / given).log()).sum() / 2
    assert loss.item() == pytest.approx(((1 - weight) * F.cross_entropy(student, LABELS) + weight * temperature**2 * divergence).item())


def test_a_distillation_token_learns_from_the_teacher_and_the_class_token_from_the_labels():
    torch.manual_seed(0)
    model = create("tiny", distillation_token=True, classes=3, width=12, mlp_width=12, heads=2)
    learner = Learner(model, taught(Table(LOGITS), 1.0, 1.0))
    learner(torch.randn(2, 3, 32, 32), LABELS).loss.backward()
    assert model.distillation_head.linear.weight.grad.abs().sum() > 0
    assert model.head.linear.weight.grad.abs().sum() == 0
    assert learner(torch.randn(2, 3, 32, 32)).shape == (2, 3)


class Half(Teacher):
    """Knows the first and the last of three classes."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.shared = torch.tensor([0, 2])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return LOGITS[:, [0, 2]]


def test_answers_are_compared_over_the_classes_that_both_know():
    """Pictures of class 1, or the part of a mixed one, are learnt from labels alone."""
    student, labels = torch.tensor([[0.0, 1.0, 0.5], [1.0, -1.0, 0.0]]), torch.tensor([0, 1])
    task = taught(Half(), 0.7, 2.0)
    wanted, given = ((logits[:, [0, 2]] / 2).softmax(1) for logits in (LOGITS, student))
    near = 4 * (wanted * (wanted / given).log()).sum(1)
    own = F.cross_entropy(student, labels, reduction="none")
    loss = task.losses(Table(student), IMAGES, labels, None, None, None).loss
    assert loss.item() == pytest.approx(((0.3 * own[0] + 0.7 * near[0] + own[1]) / 2).item())
    other, lam = torch.tensor([1, 2]), torch.tensor([0.75, 0.75])
    share = torch.tensor([0.7 * 0.75, 0.7 * 0.25])
    mixed = lam * own + (1 - lam) * F.cross_entropy(student, other, reduction="none")
    loss = task.losses(Table(student), IMAGES, labels, other, lam, None).loss
    assert loss.item() == pytest.approx(((1 - share) * mixed + share * near).mean().item())


def test_features_are_turned_towards_the_teachers_and_the_teacher_is_left_alone():
    torch.manual_seed(0)
    model = create("tiny", classes=3, width=12, mlp_width=12, heads=2)
    elder = create("tiny", classes=0, width=24, mlp_width=12, heads=2, image_size=48)
    task = FeatureDistillation(Teacher(elder, Preprocess.of(model)), model, 1.0, one_label())
    assert {name for name, _ in task.named_parameters()} == set(task.state_dict()) == {"map.weight", "map.bias"}
    images = torch.randn(4, 3, 32, 32)
    optimizer = torch.optim.AdamW([*model.parameters(), *task.parameters()], lr=1e-2)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        outcome = task.losses(model, images, torch.tensor([0, 1, 2, 0]), None, None, None)
        outcome.loss.backward()
        optimizer.step()
        losses.append(outcome.loss.item())
    assert losses[-1] < 0.1 < 0.5 < losses[0]
    assert all(parameter.grad is None for parameter in elder.parameters())
    with pytest.raises(ConfigError, match=r"teacher.*cnn"):
        FeatureDistillation(Teacher(elder, Preprocess.of(model)), create("cnn", image_size=32), 1.0, one_label())
