"""What a task is to the loop: hooks. The loop calls them and knows no task by name; `tasks.task_for` picks one for a run.

`losses` becomes one compiled graph with the model, so nothing in it depends on values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from vitral.model.classifier import Classifier
from vitral.train.counts import Counts

if TYPE_CHECKING:
    from vitral.data.loader import Batch, Loader
    from vitral.train.prepare import Setup
    from vitral.train.steps import Stepper


class Outcome(NamedTuple):
    loss: Tensor
    """Mean over the images, to be minimised."""
    correct: Tensor
    """Number of right answers; a mixed image counts for each of its labels by its weight. Without labels: 0."""


class Validation(NamedTuple):
    """What the held-out images showed."""

    loss: float
    images: int
    figures: dict[str, Any]
    """What else the line of the journal has."""
    shown: dict[str, float]
    """What the progress bar shows."""
    accuracy: float | None = None
    score: float | None = None
    """What the best weights are chosen by; None: by nothing."""


Score = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Outcome]
"""What logits (B, K) are worth, given the labels."""


class Task(nn.Module):
    """What is learnt. Modules of its own (a projection, a decoder) learn, have an EMA and a checkpoint together with the model, but are
    no part of what is saved; what is saved with the model is its head."""

    looks = 0
    """Validations of a run at the least, the first of them of the untrained model; 0: as often as `evaluate_every` says."""

    def new_head(self, model: Classifier) -> nn.Module | None:  # noqa: ARG002
        """The head that this task needs in place of the model's: it learns and is saved with the model. None: the model's own."""
        return None

    # ---- inside a step ---------------------------------------------------------------------------------------------------------

    def targets(self, batch: Batch) -> Tensor:
        """What `losses` gets as labels, from a batch of the loader; the first axis is that of the images."""
        return batch.labels

    def losses(
        self, model: Classifier, images: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, keep: float | None
    ) -> Outcome:
        """Of a batch, of each image of which the share `keep` of the patches is shown (None: all)."""
        raise NotImplementedError

    def answers(self, model: Classifier, images: Tensor) -> Tensor:
        """What the model says of each image, for evaluation: logits, one row or one map per image."""
        return model(images)

    def begin(self, progress: float) -> None:
        """Before each step: set what changes over a run, in place on the device."""

    def after(self, model: Classifier) -> None:
        """After the optimizer has moved the model, recorded with its step."""

    def parts(self) -> list[nn.Module]:
        """Modules that are compiled, each on its own."""
        return []

    # ---- around the steps ------------------------------------------------------------------------------------------------------

    def open(self, setup: Setup, stepper: Stepper) -> None:
        """Before the first step: what will be validated on."""

    def warm_up(self, setup: Setup, stepper: Stepper) -> float:  # noqa: ARG002
        """Compile what validates; returns the seconds it took."""
        return 0.0

    def remember(self, lines: list[dict[str, Any]]) -> None:
        """Validations that the journal of a resumed run has already."""

    def validate(self, stepper: Stepper, step: int) -> Validation | None:  # noqa: ARG002
        """The held-out images, with the weights that count; None: there are none."""
        return None

    def review(self, held: Validation, counts: Counts, progress: float, quiet: bool) -> None:
        """After a validation has been written down: warn, or end the run."""

    def journal(self, loss: float, correct: float) -> dict[str, float]:
        """What a training line has of the mean loss and the share of right answers."""
        return {"loss": loss, "accuracy": correct}

    def score(self, stepper: Stepper, loader: Loader) -> Any:
        """What the final model is worth on a split that is opened at the end."""
        raise NotImplementedError

    def finish(self, stepper: Stepper) -> Any:  # noqa: ARG002
        """Once the final weights are in the model, before they are written; what it returns is handed to the caller of `fit`."""
        return None


def learnable(model: nn.Module, task: Task) -> dict[str, nn.Parameter]:
    """The parameters of a model and of its task by name; the task's begin with `task.`."""
    return dict(model.named_parameters()) | {f"task.{name}": value for name, value in task.named_parameters()}


class Learner(nn.Module):
    """A model with its task inside one forward: what is compiled, and what DDP and FSDP wrap."""

    def __init__(self, model: Classifier, task: Task) -> None:
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
        """With labels: the outcome; without: the answers, for evaluation through the same wrappers."""
        if labels is None:
            return self.task.answers(self.model, images)
        return self.task.losses(self.model, images, labels, labels_b, lam, keep)
