"""How good a model is on a split: loss, top-1 and top-5, per class, confusion, calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.base.errors import FailedError, UsageError

BINS = 15


@dataclass(frozen=True)
class Evaluation:
    loss: float
    top1: float
    """Share of right answers."""
    top5: float
    """Share of pictures whose class is among the five best."""
    per_class: np.ndarray
    """(K,) share of right answers for each class; NaN where a class has no picture."""
    confusion: np.ndarray
    """(K, K) counts: row = true class, column = answer."""
    calibration: dict[str, Any]
    """`error`: expected calibration error over 15 equal bins; `confidence`, `accuracy`, `count` of each bin."""
    predictions: np.ndarray
    """(N,) answers in the order of the split."""
    labels: np.ndarray

    def __repr__(self) -> str:
        return f"Evaluation(top1 {self.top1:.2%}, top5 {self.top5:.2%}, loss {self.loss:.4f}, {len(self.labels):,} images)"

    def to_dict(self, classes: Sequence[str] = ()) -> dict[str, Any]:
        """Plain JSON values; accuracies are fractions."""
        names = list(classes) or [str(index) for index in range(len(self.per_class))]
        return {
            "pictures": len(self.labels),
            "loss": self.loss,
            "top1": self.top1,
            "top5": self.top5,
            "per_class": {name: None if np.isnan(value) else float(value) for name, value in zip(names, self.per_class, strict=False)},
            "confusion": self.confusion.tolist(),
            "calibration": {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in self.calibration.items()},
        }


@torch.no_grad()
def evaluate(
    model: nn.Module,
    loader: Any,
    *,
    forward: Callable[[Tensor], Tensor] | None = None,
    precision: AbstractContextManager[Any] | None = None,
    gather: Callable[[list[np.ndarray]], list[np.ndarray]] | None = None,
) -> Evaluation:
    """Every picture of the loader once. The device is read once, at the end. `forward`: a compiled stand-in for `model`;
    `gather` joins the arrays of several processes."""
    was_training = model.training
    model.eval()
    forward = forward or model
    losses, guesses, places, confidences, labels, indices = [], [], [], [], [], []
    classes = 0
    try:
        with precision or nullcontext():
            for batch in loader.epoch(0):
                logits = forward(batch.images).float()  # (B, K)
                classes = logits.shape[1]
                own = logits.gather(1, batch.labels[:, None])
                best, guess = logits.softmax(dim=1).max(dim=1)
                losses.append(F.cross_entropy(logits, batch.labels, reduction="none"))
                guesses.append(guess)
                places.append((logits > own).sum(dim=1))
                confidences.append(best)
                labels.append(batch.labels)
                indices.append(batch.indices.to(guess.device))
    finally:
        model.train(was_training)
    columns = [torch.cat(column).cpu().numpy() for column in (indices, losses, guesses, places, confidences, labels)]
    if gather is not None:
        columns = gather(columns)
    # Several processes may see a picture twice (an even share for each): once is enough.
    _, first = np.unique(columns[0], return_index=True)
    _, loss, guess, place, confidence, label = (column[first] for column in columns)
    if lost := int((~np.isfinite(confidence)).sum()):
        raise FailedError(
            f"the model's output is NaN or infinite for {lost:,} of {len(confidence):,} pictures",
            "its training diverged: lower the learning rate",
        )
    return summarise(loss, guess, place, confidence, label, classes)


def summarise(
    loss: np.ndarray, guess: np.ndarray, place: np.ndarray, confidence: np.ndarray, label: np.ndarray, classes: int
) -> Evaluation:
    confusion = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(confusion, (label, guess), 1)
    totals = confusion.sum(axis=1)
    per_class = np.divide(np.diag(confusion), totals, out=np.full(classes, np.nan), where=totals > 0)
    return Evaluation(
        loss=float(loss.astype(np.float64).mean()),
        top1=float((guess == label).mean()),
        top5=float((place < 5).mean()),
        per_class=per_class,
        confusion=confusion,
        calibration=calibrate(confidence, guess == label),
        predictions=guess,
        labels=label,
    )


def calibrate(confidence: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Does a confidence of 80 % mean right 80 % of the time? Equal bins of confidence."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    mean_confidence = np.bincount(bins, weights=confidence, minlength=BINS) / np.maximum(count, 1)
    accuracy = np.bincount(bins, weights=right.astype(float), minlength=BINS) / np.maximum(count, 1)
    error = float((count * np.abs(mean_confidence - accuracy)).sum() / max(1, count.sum()))
    return {"error": error, "confidence": mean_confidence, "accuracy": accuracy, "count": count}


def compare_names(who: str, ours: Sequence[str], data: str, theirs: Sequence[str]) -> str:
    """As many classes need not be the same classes: a note, since ImageNet's folders rightly have other names than its classes."""
    if not ours or tuple(ours) == tuple(theirs):
        return ""
    if sorted(ours) == sorted(theirs):
        raise UsageError(
            f"{who} has the classes of {data} in another order ({few(ours)}; {few(theirs)})", "name the folders so that they sort alike"
        )
    return f"{who}'s classes are {few(ours)}, those of {data} are {few(theirs)}: they are compared by their numbers"


def few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
