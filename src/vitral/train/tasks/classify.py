"""Name the class: cross-entropy, with mixed labels, label smoothing and class weights."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from vitral.train.tasks.task import Outcome, Task


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
