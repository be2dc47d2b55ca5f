"""Learn from a teacher: its softened answers where it knows the classes, its features otherwise. B images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.base.errors import ConfigError
from vitral.config import TrainConfig
from vitral.model.classifier import Classifier
from vitral.model.vit import ViT
from vitral.train.tasks.classify import Classify, cross_entropies, one_label, right_answers
from vitral.train.tasks.task import Outcome, Score
from vitral.train.teacher import Teacher


class Distillation(Classify):
    """Name the class and answer like the teacher: its softened probabilities, read off the distillation token where there is one.

    Answers are compared over the classes that both know; an image of another class is learnt from its label alone.
    """

    def __init__(self, teacher: nn.Module, config: TrainConfig, weights: Tensor | None = None) -> None:
        super().__init__(one_label(config.label_smoothing, weights))
        self.frozen = (teacher,)  # in a tuple: it neither learns nor belongs into a checkpoint
        self.share, self.temperature = config.teacher_weight, config.teacher_temperature
        self.smoothing, self.weights = config.label_smoothing, weights

    def losses(
        self, model: Classifier, images: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, keep: float | None
    ) -> Outcome:
        extra = {} if keep is None else {"keep_patches": keep}
        if getattr(getattr(model, "config", None), "distillation_token", False):
            own, copied = (part.float() for part in model.logits_of_each_head(images, **extra))  # type: ignore[operator]
        else:
            own = copied = model(images, **extra).float()
        shared, temperature = getattr(self.frozen[0], "shared", None), self.temperature
        with torch.no_grad():
            softened = F.log_softmax(self.frozen[0](images).float() / temperature, dim=1)
        answered = F.log_softmax((copied if shared is None else copied[:, shared]) / temperature, dim=1)
        near = F.kl_div(answered, softened, reduction="none", log_target=True).sum(1) * temperature**2  # (B,)
        share = self._share_of(labels, labels_b, lam)
        loss = (1 - share) * cross_entropies(own, labels, labels_b, lam, self.smoothing, self.weights) + share * near
        return Outcome(loss.mean(), right_answers(own + copied, labels, labels_b, lam))

    def _share_of(self, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None) -> Tensor | float:
        teacher = self.frozen[0]
        if not isinstance(teacher, Teacher) or teacher.shared is None:
            return self.share
        knows = teacher.knows(labels)  # (B,)
        return self.share * (knows if labels_b is None or lam is None else torch.lerp(teacher.knows(labels_b), knows, lam))


class FeatureDistillation(Classify):
    """Answer as the labels say, out of features that a linear map turns towards the teacher's; the map is no part of what is saved."""

    def __init__(self, teacher: Teacher, student: Classifier, share_of_teacher: float, score: Score, seed: int = 0) -> None:
        super().__init__(score)
        if not isinstance(student, ViT):
            raise ConfigError(f"the features of a teacher are learnt by a ViT, not by a {student.config.family}", "set distil = answers")
        self.frozen = (teacher,)  # in a tuple: it neither learns nor belongs into a checkpoint
        self.share = share_of_teacher
        width = student.config.width * (2 if student.config.pool == "class+mean" else 1)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # the same in every process
            self.map = nn.Linear(width, teacher.width)

    def losses(
        self, model: Classifier, images: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, keep: float | None
    ) -> Outcome:
        assert isinstance(model, ViT)
        pooled, tokens = model.summarise(images, keep_patches=keep)
        answered = self.judge(model.answer(pooled, tokens).float(), labels, labels_b, lam)
        near = F.cosine_similarity(self.map(pooled).float(), self.frozen[0].features(images).float(), dim=1).mean()
        return Outcome((1 - self.share) * answered.loss + self.share * (1 - near), answered.correct)
