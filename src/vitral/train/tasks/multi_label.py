"""Give every label that a picture has: binary cross-entropy of each class on its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitral.train.tasks.task import Outcome, Score


def multi_label_loss(smoothing: float = 0.0, weights: Tensor | None = None) -> Score:
    """Labels are (B, K) of 0 and 1; `weights` (K,): how much more a label that is there counts than one that is not.

    Mixed pictures have both pictures' labels, each by its weight. Smoothing draws every target towards one half.
    """

    def score(logits: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None) -> Outcome:
        targets = labels if labels_b is None or lam is None else torch.lerp(labels_b, labels, lam[:, None])
        softened = targets * (1 - smoothing) + smoothing / 2
        loss = F.binary_cross_entropy_with_logits(logits, softened, pos_weight=weights)
        # Right, as the journal counts: the most probable class is one of the labels.
        surest = logits.detach().argmax(dim=1, keepdim=True)
        return Outcome(loss, targets.gather(1, surest).sum())

    return score
