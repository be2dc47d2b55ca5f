"""What every task gives the loop: a loss, and how many answers were right, out of one forward that can be compiled.

A task contains no control flow that depends on values, so that the model, the loss and the statistics become one graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn


class Outcome(NamedTuple):
    loss: Tensor
    """Mean over the pictures, to be minimised."""
    correct: Tensor
    """Number of right answers; a mixed picture counts for each of its labels by its weight."""


Task = Callable[[nn.Module, Tensor, Tensor, Tensor | None, Tensor | None, float | None], Outcome]


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
