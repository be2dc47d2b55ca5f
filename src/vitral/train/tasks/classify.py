"""Name the class: cross-entropy, with mixed labels, label smoothing and class weights."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from vitral.train.tasks.task import Outcome, Score


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
