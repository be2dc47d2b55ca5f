"""Learn from a teacher: its softened answers where it knows the classes, its features otherwise. B images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.base.errors import ConfigError
from vitral.model.classifier import Classifier
from vitral.model.vit import ViT
from vitral.train.tasks.classify import cross_entropies, right_answers
from vitral.train.tasks.task import Outcome, Score, Task, TaskModule
from vitral.train.teacher import Teacher


def distillation(
    teacher: nn.Module, share_of_teacher: float, temperature: float, smoothing: float = 0.0, weights: Tensor | None = None
) -> Task:
    """Name the class and answer like the teacher: its softened probabilities, read off the distillation token where there is one.

    Answers are compared over the classes that both know; a picture of another class is learnt from its label alone.
    """
    known: Tensor | None = getattr(teacher, "known", None)

    def share_of(labels: Tensor, labels_b: Tensor | None, lam: Tensor | None) -> Tensor | float:
        if not isinstance(teacher, Teacher) or known is None:
            return share_of_teacher
        knows = teacher.knows(labels)  # (B,)
        return share_of_teacher * (knows if labels_b is None or lam is None else torch.lerp(teacher.knows(labels_b), knows, lam))

    def task(model: nn.Module, images: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, keep: float | None) -> Outcome:
        extra = {} if keep is None else {"keep_patches": keep}
        if getattr(getattr(model, "config", None), "distillation_token", False):
            own, copied = (part.float() for part in model.logits_of_each_head(images, **extra))  # type: ignore[operator]
        else:
            own = copied = model(images, **extra).float()
        with torch.no_grad():
            wanted = F.log_softmax(teacher(images).float() / temperature, dim=1)
        given = F.log_softmax((copied if known is None else copied[:, known]) / temperature, dim=1)
        near = F.kl_div(given, wanted, reduction="none", log_target=True).sum(1) * temperature**2  # (B,)
        share = share_of(labels, labels_b, lam)
        loss = (1 - share) * cross_entropies(own, labels, labels_b, lam, smoothing, weights) + share * near
        return Outcome(loss.mean(), right_answers(own + copied, labels, labels_b, lam))

    return task


class FeatureDistillation(TaskModule):
    """Answer as the labels say, out of features that a linear map turns towards the teacher's; the map is no part of what is saved."""

    def __init__(self, teacher: Teacher, student: Classifier, share_of_teacher: float, score: Score, seed: int = 0) -> None:
        super().__init__()
        if not isinstance(student, ViT):
            raise ConfigError(f"the features of a teacher are learnt by a ViT, not by a {student.config.family}", "set distil = answers")
        self.frozen = (teacher,)  # in a tuple: it neither learns nor belongs into a checkpoint
        self.share, self.score = share_of_teacher, score
        width = student.config.width * (2 if student.config.pool == "class+mean" else 1)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # the same in every process
            self.map = nn.Linear(width, teacher.width)

    def forward(
        self, model: ViT, images: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, keep: float | None
    ) -> Outcome:
        pooled, tokens = model.summarise(images, keep_patches=keep)
        answered = self.score(model.answer(pooled, tokens).float(), labels, labels_b, lam)
        near = F.cosine_similarity(self.map(pooled).float(), self.frozen[0].features(images).float(), dim=1).mean()
        return Outcome((1 - self.share) * answered.loss + self.share * (1 - near), answered.correct)
