"""Name the class: cross-entropy, with mixed labels, label smoothing and class weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from vitral.base.progress import say
from vitral.config import RunConfig
from vitral.model.classifier import Classifier
from vitral.train import advice
from vitral.train.counts import Counts
from vitral.train.evaluate import Scored, evaluate_loader
from vitral.train.multi_label import settle_thresholds
from vitral.train.prepare import held_out_loader
from vitral.train.tasks.task import Outcome, Score, Task, Validation

if TYPE_CHECKING:
    from vitral.data.loader import Loader
    from vitral.train.prepare import Setup
    from vitral.train.steps import Stepper


def cross_entropies(
    logits: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, smoothing: float, weights: Tensor | None
) -> Tensor:
    """Of each picture (B,); mixed ones count for both labels; class weights have mean 1 over the training pictures."""
    one = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")  # (B,)
    if weights is not None:
        one = one * weights[labels]
    if labels_b is not None and lam is not None:
        two = F.cross_entropy(logits, labels_b, label_smoothing=smoothing, reduction="none")
        two = two if weights is None else two * weights[labels_b]
        one = lam * one + (1 - lam) * two
    return one


def right_answers(logits: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None) -> Tensor:
    guesses = logits.detach().argmax(dim=1)
    hits = (guesses == labels).float()
    if labels_b is not None and lam is not None:
        hits = lam * hits + (1 - lam) * (guesses == labels_b).float()
    return hits.sum()


def one_label(smoothing: float = 0.0, weights: Tensor | None = None) -> Score:
    """Name the class."""

    def score(logits: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None) -> Outcome:
        loss = cross_entropies(logits, labels, labels_b, lam, smoothing, weights).mean()
        return Outcome(loss, right_answers(logits, labels, labels_b, lam))

    return score


class Classify(Task):
    """Learn from labels: `score` judges the model's logits. Validated by accuracy, or by average precision of several labels."""

    run: RunConfig
    held: Loader | None

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.judge = score

    def losses(
        self, model: Classifier, images: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, keep: float | None
    ) -> Outcome:
        logits = (model(images) if keep is None else model(images, keep_patches=keep)).float()  # (B, K)
        return self.judge(logits, labels, labels_b, lam)

    def open(self, setup: Setup, stepper: Stepper) -> None:
        self.run = setup.config
        split = setup.data.validation
        self.held = held_out_loader(setup, split, stepper.world) if len(split) else None

    def warm_up(self, setup: Setup, stepper: Stepper) -> float:
        loader = self.held
        if loader is None and setup.config.opens and stepper.compiled:  # test must not wait for it; one image is filled up
            loader = held_out_loader(setup, setup.data.train.subset(np.arange(stepper.world.size)), stepper.world)
        return stepper.warm_up_answers(loader) if loader is not None else 0.0

    def score(self, stepper: Stepper, loader: Loader) -> Scored:
        gather = stepper.world.gather if stepper.world.many else None
        return evaluate_loader(stepper.model, loader, forward=stepper.logits, precision=stepper.precision(), gather=gather)

    def validate(self, stepper: Stepper, step: int) -> Validation | None:  # noqa: ARG002
        if self.held is None:
            return None
        result = self.score(stepper, self.held)
        return Validation(result.loss, len(result.labels), result.journal, {"validation": result.top1}, result.top1, result.score)

    def review(self, held: Validation, counts: Counts, progress: float, quiet: bool) -> None:
        note = advice.during(self.run, counts.accuracy, held.accuracy or 0.0, progress)
        if note and not counts.warned:
            counts.warned = True
            if not quiet:
                say(f"note: {note}")

    def finish(self, stepper: Stepper) -> None:
        if stepper.model.origin.multi_label and self.held is not None:
            settle_thresholds(stepper.model, self.score(stepper, self.held))
