"""Answer like a teacher: a model that is shown the student's images as it knows them, and whose softened answers are learnt."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.base.errors import ConfigError
from vitral.data.class_names import match_classes
from vitral.data.datasets import Data
from vitral.data.preprocess import Preprocess
from vitral.data.sealed import check_learnt
from vitral.model.classifier import Classifier
from vitral.train.tasks.classify import cross_entropy, right_answers
from vitral.train.tasks.task import Outcome, Task
from vitral.weights.load import load


def distillation(
    teacher: nn.Module, share_of_teacher: float, temperature: float, smoothing: float = 0.0, weights: Tensor | None = None
) -> Task:
    """Name the class and answer like the teacher: its softened probabilities, read off the distillation token where there is one."""
    teacher.requires_grad_(False).eval()

    def task(model: nn.Module, images: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, keep: float | None) -> Outcome:
        extra = {} if keep is None else {"keep_patches": keep}
        if getattr(getattr(model, "config", None), "distillation_token", False):
            own, copied = (part.float() for part in model.logits_of_each_head(images, **extra))  # type: ignore[operator]
        else:
            own = copied = model(images, **extra).float()
        with torch.no_grad():
            wanted = F.log_softmax(teacher(images).float() / temperature, dim=1)
        near = F.kl_div(F.log_softmax(copied / temperature, dim=1), wanted, reduction="batchmean", log_target=True) * temperature**2
        loss = (1 - share_of_teacher) * cross_entropy(own, labels, labels_b, lam, smoothing, weights) + share_of_teacher * near
        return Outcome(loss, right_answers(own + copied, labels, labels_b, lam))

    return task


class Teacher(nn.Module):
    """A model to learn from, shown the student's pictures as it knows them: its own normalisation and size."""

    def __init__(self, model: Classifier, student: Preprocess) -> None:
        super().__init__()
        own = Preprocess.of(model)
        self.model, self.size = model, own.image_size
        if own.channels != student.channels:
            raise ConfigError(f"the teacher wants {own.channels} channels, the student {student.channels}", "choose a teacher with as many")
        scale = torch.tensor(student.std) / torch.tensor(own.std)
        shift = (torch.tensor(student.mean) - torch.tensor(own.mean)) / torch.tensor(own.std)
        self.register_buffer("scale", scale.view(1, -1, 1, 1), persistent=False)
        self.register_buffer("shift", shift.view(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        images = images * self.scale + self.shift  # type: ignore[operator]
        if images.shape[-2:] != self.size:
            images = F.interpolate(images, self.size, mode="bilinear", antialias=True)
        return self.model(images)


def load_teacher(name: str, data: Data, student: Preprocess, device: torch.device, quiet: bool = False) -> Teacher:
    model = load(name)
    check_learnt(model.origin.data, data.config, f"teacher {name}")
    if model.config.classes != len(data.class_names):
        raise ConfigError(
            f"teacher {name} has {model.config.classes} classes, the data {len(data.class_names)}",
            "train or fine-tune the teacher on the same data first",
        )
    numbers = match_classes("the teacher", model.origin.classes.value, model.config.classes, data.name, data.class_names, quiet)
    if (numbers != np.arange(len(numbers))).any():
        raise ConfigError(f"the teacher has the classes of {data.name} in another order", "name the folders so that they sort alike")
    return Teacher(model, student).to(device)
