"""What every task gives the loop: a loss, and how many answers were right, out of one forward that can be compiled.

A task contains no control flow that depends on values, so that the model, the loss and the statistics become one graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from vitral.model.classifier import Classifier


class Outcome(NamedTuple):
    loss: Tensor
    """Mean over the pictures, to be minimised."""
    correct: Tensor
    """Number of right answers; a mixed picture counts for each of its labels by its weight. Without labels: 0."""


Task = Callable[[nn.Module, Tensor, Tensor, Tensor | None, Tensor | None, float | None], Outcome]


Score = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Outcome]
"""What logits (B, K) are worth, given the labels."""


def answering(score: Score) -> Task:
    """A task whose loss is of the model's logits alone."""

    def task(model: nn.Module, images: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, keep: float | None) -> Outcome:
        logits = (model(images) if keep is None else model(images, keep_patches=keep)).float()  # (B, K)
        return score(logits, labels, labels_b, lam)

    return task


class TaskModule(nn.Module):
    """A task with modules of its own (a projection, a decoder, a teacher).

    They learn, are averaged, stored in checkpoints, wrapped and recorded together with the model, but are no part of what is saved.
    """

    def begin(self, progress: float) -> None:
        """Before each step: set what changes over a run, in place on the device."""

    def after(self, model: Classifier) -> None:
        """After the optimizer has moved the model, recorded with its step."""

    def parts(self) -> list[nn.Module]:
        """Modules that are compiled, each on its own."""
        return []


class Method(TaskModule):
    """A task that learns without labels, from views (B, V, C, H, W)."""

    def forward(
        self, model: Classifier, images: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, keep: float | None
    ) -> Outcome:
        """As the loop calls every task; labels and what belongs to them stay here."""
        del labels, labels_b, lam
        loss = self.loss(model, images, keep)
        return Outcome(loss, loss.new_zeros(()))

    def loss(self, model: Classifier, images: Tensor, keep: float | None) -> Tensor:
        """Of views (B, V, C, H, W), of each of which the share `keep` of the patches is shown."""
        raise NotImplementedError

    def embed(self, model: Classifier, images: Tensor) -> Tensor:
        """What the loss compares, of images (N, C, H, W): (N, D)."""
        raise NotImplementedError

    def figures(self, images: Tensor) -> dict[str, Tensor]:  # noqa: ARG002
        """What else shows whether it learns, of views (B, V, C, H, W)."""
        return {}


def learnable(model: nn.Module, task: Task) -> dict[str, nn.Parameter]:
    """The parameters of a model and of its task by name; the task's begin with `task.`."""
    own = {f"task.{name}": value for name, value in task.named_parameters()} if isinstance(task, TaskModule) else {}
    return dict(model.named_parameters()) | own


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
