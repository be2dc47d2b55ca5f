"""What is learnt, one file a task. The loop knows none of them: `task_of`, `taught_by` and `method_of` pick one for a config."""

from __future__ import annotations

from torch import Tensor

from vitral.config import PretrainConfig, TrainConfig
from vitral.model.classifier import Classifier
from vitral.train.tasks.classify import one_label
from vitral.train.tasks.dino import DINO
from vitral.train.tasks.distil import FeatureDistillation, distillation
from vitral.train.tasks.lejepa import LeJEPA
from vitral.train.tasks.mae import MAE
from vitral.train.tasks.multi_label import multi_label_loss
from vitral.train.tasks.task import Method, Score, Task, answering
from vitral.train.teacher import Distil, Teacher


def task_of(config: TrainConfig, weights: Tensor | None = None, multi_label: bool = False) -> Task:
    """What labels alone teach; `several`: the data has several a picture."""
    return answering(score_of(config, weights, multi_label))


def taught_by(teacher: Teacher, distil: Distil, model: Classifier, config: TrainConfig, weights: Tensor | None, multi_label: bool) -> Task:
    """What labels and a teacher teach `model`."""
    if distil == "features":
        return FeatureDistillation(teacher, model, config.teacher_weight, score_of(config, weights, multi_label), config.seed)
    return distillation(teacher, config.teacher_weight, config.teacher_temperature, config.label_smoothing, weights)


def score_of(config: TrainConfig, weights: Tensor | None, multi_label: bool) -> Score:
    return (multi_label_loss if multi_label else one_label)(config.label_smoothing, weights)


def method_of(config: PretrainConfig, model: Classifier) -> Method:
    """How `model` learns without labels."""
    width = model.config.width * (2 if model.config.pool == "class+mean" else 1)
    if config.method == "lejepa":
        return LeJEPA(config, width)
    return DINO(config, model, width) if config.method == "dino" else MAE(config, model)
