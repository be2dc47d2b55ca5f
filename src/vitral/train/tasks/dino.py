"""DINO (Caron et al. 2021, arXiv 2104.14294): a student that sees a part answers like its teacher, who sees the whole and is its own EMA.

Both answer with a distribution over prototypes that mean nothing at first. Two things keep all answers from becoming one: the teacher's
are centred (no prototype wins everywhere) and sharpened (nor are all alike); either alone would collapse in the other's way.
B pictures, V views of which G are global, K prototypes.
"""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.config import PretrainConfig
from vitral.model.classifier import Classifier
from vitral.train.parallel import everywhere
from vitral.train.tasks.projection import Projection
from vitral.train.tasks.unlabelled import Unlabelled


class DINO(Unlabelled):
    centre: Tensor
    seen: Tensor
    momentum: Tensor
    temperature: Tensor

    def __init__(self, config: PretrainConfig, model: Classifier, width: int) -> None:
        super().__init__()
        self.config, self.whole = config, config.global_views
        self.head = Head(config, width)
        self.teacher, self.teacher_head = (copy.deepcopy(each).requires_grad_(False).eval() for each in (model, self.head))
        self.register_buffer("centre", torch.zeros(config.prototypes))
        self.register_buffer("seen", torch.zeros(config.prototypes), persistent=False)  # the teacher's mean answer in this batch
        # What changes over a run, filled in before each step: a recorded step reads them where they lie.
        self.register_buffer("momentum", torch.tensor(config.teacher_momentum), persistent=False)
        self.register_buffer("temperature", torch.tensor(config.first_target_temperature), persistent=False)

    def loss(self, model: Classifier, images: Tensor, keep: float | None) -> Tensor:
        answers = self.head(model(images.flatten(0, 1), keep_patches=keep)).unflatten(0, images.shape[:2])  # (B, V, K)
        expected = self.teacher_answers(images[:, : self.whole])  # (B, G, K)
        log = F.log_softmax(answers.float() / self.config.student_temperature, dim=-1)
        crossed = -torch.einsum("bgk,bvk->gv", expected, log) / len(images)
        # A student does not answer for the view that its teacher has just seen.
        other = 1 - torch.eye(self.whole, images.shape[1], device=images.device)
        return (crossed * other).sum() / other.sum()

    @torch.no_grad()
    def teacher_answers(self, images: Tensor) -> Tensor:
        """What the teacher answers to whole pictures (B, G, C, H, W): centred, then sharpened."""
        answers = self.teacher_head(self.teacher(images.flatten(0, 1))).float()
        self.seen.copy_(everywhere(answers.mean(0)))
        return F.softmax((answers - self.centre) / self.temperature, dim=-1).unflatten(0, images.shape[:2])

    def begin(self, progress: float) -> None:
        """The teacher's momentum rises to 1 along a cosine, its temperature in a line; prototypes are let go after their first steps."""
        config = self.config
        self.momentum.fill_(1 - (1 - config.teacher_momentum) * (math.cos(math.pi * progress) + 1) / 2)
        warm = min(1.0, progress / config.target_warmup) if config.target_warmup else 1.0
        self.temperature.fill_(config.first_target_temperature + warm * (config.target_temperature - config.first_target_temperature))
        self.head.free.fill_(float(progress >= config.prototypes_frozen))

    @torch.no_grad()
    def after(self, model: Classifier) -> None:
        """The teacher follows its student, the centre the teacher's answers."""
        self.centre.lerp_(self.seen, 1 - self.config.centre_momentum)
        teacher: list[Tensor] = [*self.teacher.parameters(), *self.teacher_head.parameters()]
        student: list[Tensor] = [*model.parameters(), *self.head.parameters()]
        torch._foreach_mul_(teacher, self.momentum)
        torch._foreach_add_(teacher, torch._foreach_mul(student, 1 - self.momentum))

    def embed(self, model: Classifier, images: Tensor) -> Tensor:
        return F.softmax(self.head(model(images)).float() / self.config.student_temperature, dim=-1)

    def figures(self, images: Tensor) -> dict[str, Tensor]:
        """Entropy of the teacher's answers, one by one and in the mean, as shares of the largest: healthy are low and high."""
        expected = self.teacher_answers(images[:, : self.whole]).flatten(0, 1)  # (B·G, K)
        largest = math.log(expected.shape[-1])
        mean = expected.mean(0)
        single, together = (-(p * p.clamp_min(1e-12).log()).sum(-1) / largest for p in (expected, mean))
        return {"teacher_entropy": single.mean(), "teacher_entropy_of_mean": together}

    def parts(self) -> list[nn.Module]:
        return [*getattr(self.teacher, "blocks", []), self.head, self.teacher_head]


class Head(nn.Module):
    """Three layers, then the cosine to each prototype: both sides have length 1, so no answer grows by growing."""

    free: Tensor

    def __init__(self, config: PretrainConfig, width: int) -> None:
        super().__init__()
        self.layers = Projection(width, config.projection_hidden, config.projection, normed=config.head_norm == "batch")
        self.prototypes = nn.Parameter(torch.empty(config.prototypes, config.projection))
        self.register_buffer("free", torch.ones(()), persistent=False)  # 0: prototypes have no gradient
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=1 / math.sqrt(layer.in_features))
                nn.init.zeros_(layer.bias)
        nn.init.normal_(self.prototypes)

    def forward(self, features: Tensor) -> Tensor:
        prototypes = torch.lerp(self.prototypes.detach(), self.prototypes, self.free)
        return F.linear(F.normalize(self.layers(features).float(), dim=-1), F.normalize(prototypes, dim=-1))  # (N, K)
