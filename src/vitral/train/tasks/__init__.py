"""What is learnt, one file a task. The loop knows none of them; `task_of` picks the one that a config asks for."""

from __future__ import annotations

from torch import Tensor, nn

from vitral.config import TrainConfig
from vitral.train.tasks.classify import classification
from vitral.train.tasks.distil import distillation
from vitral.train.tasks.tag import several_labels
from vitral.train.tasks.task import Task


def task_of(config: TrainConfig, weights: Tensor | None, teacher: nn.Module | None, several: bool = False) -> Task:
    """`several`: the data has several labels a picture."""
    if several:
        return several_labels(config.label_smoothing, weights)
    if teacher is not None:
        return distillation(teacher, config.teacher_weight, config.teacher_temperature, config.label_smoothing, weights)
    return classification(config.label_smoothing, weights)
