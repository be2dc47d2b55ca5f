"""What is learnt: functions of (model, pictures, labels …) that give a loss and how many answers were right.

The loop knows none of them; `task_of` picks the one a config asks for. They contain no control flow that depends on values,
so that the model, the loss and the statistics compile into one graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.config import TrainConfig


class Outcome(NamedTuple):
    loss: Tensor
    """Mean over the pictures, to be minimised."""
    correct: Tensor
    """Number of right answers; a mixed picture counts for each of its labels by its weight."""


Task = Callable[[nn.Module, Tensor, Tensor, Tensor | None, Tensor | None, float | None], Outcome]


def cross_entropy(
    logits: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, smoothing: float, weights: Tensor | None
) -> Tensor:
    """Mean cross-entropy; mixed pictures count for both labels; class weights have mean 1 over the training pictures."""
    one = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")  # (B,)
    if weights is not None:
        one = one * weights[labels]
    if labels_b is not None and lam is not None:
        two = F.cross_entropy(logits, labels_b, label_smoothing=smoothing, reduction="none")
        two = two if weights is None else two * weights[labels_b]
        one = lam * one + (1 - lam) * two
    return one.mean()


def right_answers(logits: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None) -> Tensor:
    guesses = logits.detach().argmax(dim=1)
    hits = (guesses == labels).float()
    if labels_b is not None and lam is not None:
        hits = lam * hits + (1 - lam) * (guesses == labels_b).float()
    return hits.sum()


def classification(smoothing: float = 0.0, weights: Tensor | None = None) -> Task:
    """Name the class."""

    def task(model: nn.Module, images: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, keep: float | None) -> Outcome:
        logits = (model(images) if keep is None else model(images, keep_patches=keep)).float()  # (B, K)
        return Outcome(cross_entropy(logits, labels, labels_b, lam, smoothing, weights), right_answers(logits, labels, labels_b, lam))

    return task


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


def task_of(config: TrainConfig, weights: Tensor | None, teacher: nn.Module | None) -> Task:
    if teacher is not None:
        return distillation(teacher, config.teacher_weight, config.teacher_temperature, config.label_smoothing, weights)
    return classification(config.label_smoothing, weights)


class Learner(nn.Module):
    """A model with its task inside one forward: what is compiled, and what DDP and FSDP wrap."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__()
        self.model = model
        self.task = task

    def forward(
        self,
        images: Tensor,
        labels: Tensor | None = None,
        labels_b: Tensor | None = None,
        lam: Tensor | None = None,
        keep: float | None = None,
    ) -> Outcome | Tensor:
        """With labels: the outcome; without: the logits, for evaluation through the same wrappers."""
        if labels is None:
            return self.model(images)
        return self.task(self.model, images, labels, labels_b, lam, keep)
