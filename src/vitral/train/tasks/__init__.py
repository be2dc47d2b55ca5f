"""What is learnt, one file per task. The loop knows none of them: `task_for` picks one for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from vitral.config import PretrainConfig, TrainConfig
from vitral.model.classifier import Classifier
from vitral.train.tasks.classify import Classify, one_label
from vitral.train.tasks.dino import DINO
from vitral.train.tasks.distil import Distillation, FeatureDistillation
from vitral.train.tasks.lejepa import LeJEPA
from vitral.train.tasks.mae import MAE
from vitral.train.tasks.multi_label import multi_label_loss
from vitral.train.tasks.task import Task
from vitral.train.tasks.unlabelled import Unlabelled
from vitral.train.teacher import as_teacher
from vitral.weights.load import load, load_untrained

if TYPE_CHECKING:
    from vitral.train.prepare import Setup


def task_for(setup: Setup, quiet: bool = True) -> Task:
    """What a run learns: to name classes, from labels and perhaps a teacher, or what a method without labels says."""
    if setup.config.pretrain is not None:
        return method_of(setup.config.pretrain, setup.model)
    train, multi_label = setup.config.train, setup.data.train.multi_label
    weights = setup.data.train.class_weights().to(setup.device) if setup.config.data.class_weights else None
    if train.teacher is None:
        return task_of(train, weights, multi_label)
    opened = load_untrained(train.teacher) if setup.planned else load(train.teacher)
    teacher, distil = as_teacher(opened, train.teacher, setup.data, setup.preprocess, train.distil, quiet)
    teacher = teacher.to(setup.device)
    if distil == "features":
        score = (multi_label_loss if multi_label else one_label)(train.label_smoothing, weights)
        return FeatureDistillation(teacher, setup.model, train.teacher_weight, score, train.seed)
    return Distillation(teacher, train, weights)


def task_of(config: TrainConfig, weights: Tensor | None = None, multi_label: bool = False) -> Task:
    """What labels alone teach; `weights`: of the classes."""
    return Classify((multi_label_loss if multi_label else one_label)(config.label_smoothing, weights))


def method_of(config: PretrainConfig, model: Classifier) -> Unlabelled:
    """How `model` learns without labels."""
    width = model.config.width * (2 if model.config.pool == "class+mean" else 1)
    if config.method == "lejepa":
        return LeJEPA(config, width)
    return DINO(config, model, width) if config.method == "dino" else MAE(config, model)
