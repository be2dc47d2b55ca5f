"""What is learnt, one file a task. The loop knows none of them; `task_of` and `method_of` pick the one that a config asks for."""

from __future__ import annotations

from torch import Tensor, nn

from vitral.config import PretrainConfig, TrainConfig
from vitral.model.classifier import Classifier
from vitral.train.tasks.classify import classification
from vitral.train.tasks.dino import DINO
from vitral.train.tasks.distil import distillation
from vitral.train.tasks.lejepa import LeJEPA
from vitral.train.tasks.mae import MAE
from vitral.train.tasks.tag import several_labels
from vitral.train.tasks.task import Method, Task


def task_of(config: TrainConfig, weights: Tensor | None, teacher: nn.Module | None, several: bool = False) -> Task:
    """`several`: the data has several labels a picture."""
    if several:
        return several_labels(config.label_smoothing, weights)
    if teacher is not None:
        return distillation(teacher, config.teacher_weight, config.teacher_temperature, config.label_smoothing, weights)
    return classification(config.label_smoothing, weights)


def method_of(config: PretrainConfig, model: Classifier) -> Method:
    """How `model` learns without labels."""
    width = model.config.width * (2 if model.config.pool == "class+mean" else 1)
    if config.method == "lejepa":
        return LeJEPA(config, width)
    return DINO(config, model, width) if config.method == "dino" else MAE(config, model)
