"""How good a model is that gives each image several labels, or none: average precision, and each class by a threshold of its own.

N images, K classes. Average precision needs no threshold: it asks whether images with a label come before those without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.base.errors import DataError, FailedError
from vitral.base.numbers import to_numpy
from vitral.base.text import html, percent, table
from vitral.data.splits.split import LABEL_JOINER, Split
from vitral.model.classifier import Classifier, evaluating
from vitral.run.answers import Answers, MultiLabelAnswers

NEUTRAL = 0.5
"""The threshold of a class for which validation has nothing to choose by."""


@dataclass(frozen=True)
class MultiLabelEvaluation:
    loss: float
    probabilities: np.ndarray
    """(N, K), each class on its own."""
    labels: np.ndarray
    """(N, K) of 0 and 1."""
    thresholds: np.ndarray
    """(K,) probability from which a class is an answer."""
    class_names: tuple[str, ...] = ()
    positions: np.ndarray = field(default_factory=lambda: np.arange(0))
    """(N,) where each image is in the split: unreadable ones are missing."""
    split: Split | None = field(default=None, repr=False)
    """What was scored, where it was opened here."""
    skipped: int = 0
    """Images that could not be read."""
    dtype: str | None = None
    """What it was computed in: fp32 or bf16; None: as the run that asked."""

    @cached_property
    def predictions(self) -> np.ndarray:
        """(N, K): 1 for each class at or above its threshold."""
        return (self.probabilities >= self.thresholds).astype(np.uint8)

    @cached_property
    def average_precision(self) -> np.ndarray:
        """(K,); NaN where no image has the label."""
        return average_precision(self.probabilities, self.labels)

    @property
    def mean_average_precision(self) -> float:
        """Mean over the classes that an image has: what is called mAP."""
        return mean_without_nan(self.average_precision)

    @property
    def score(self) -> float:
        """What the best weights are chosen by."""
        return self.mean_average_precision

    @property
    def top1(self) -> float:
        """Share of images whose most probable class is one of their labels."""
        return float(self.labels[np.arange(len(self.labels)), self.probabilities.argmax(axis=1)].mean())

    @property
    def exact(self) -> float:
        """Share of images of which every class is answered rightly."""
        return float((self.predictions == self.labels).all(axis=1).mean())

    @property
    def precision(self) -> np.ndarray:
        """(K,) share of right ones among the answers of each class; NaN where it is never the answer."""
        return _ratio(self._hits, self.predictions.sum(axis=0))

    @property
    def recall(self) -> np.ndarray:
        """(K,) share of the images with a label that get it; NaN where no image has it."""
        return _ratio(self._hits, self.labels.sum(axis=0))

    @property
    def f1_per_class(self) -> np.ndarray:
        both = self.predictions.sum(axis=0, dtype=np.int64) + self.labels.sum(axis=0)
        return np.where(self.labels.any(axis=0), np.nan_to_num(_ratio(2 * self._hits, both)), np.nan)

    @property
    def f1(self) -> float:
        return mean_without_nan(self.f1_per_class)

    @property
    def journal(self) -> dict[str, float]:
        """What a line of a run's journal says besides loss and accuracy."""
        return {"mean_average_precision": self.mean_average_precision}

    @property
    def headline(self) -> str:
        return f"mean average precision {percent(self.mean_average_precision)}"

    @property
    def _hits(self) -> np.ndarray:
        return (self.predictions & self.labels).sum(axis=0, dtype=np.int64)

    def __repr__(self) -> str:
        return f"MultiLabelEvaluation({self.headline}, F1 {percent(self.f1)}, loss {self.loss:.4f}, {len(self.labels):,} images)"

    def _repr_html_(self) -> str:
        """In a notebook: the scores, then the classes, the worst first."""
        per_class = self.to_dict()["classes"]
        ranked = sorted((row["average_precision"], name) for name, row in per_class.items() if row["average_precision"] is not None)
        lines = [
            [name, *(percent(per_class[name][key]) for key in ("average_precision", "recall", "precision", "threshold"))]
            for _, name in ranked
        ]
        return html(f"{self!r}\n{table(lines[:20], ['class', 'average precision', 'recall', 'precision', 'threshold'], 'lr')}")

    def answers(self, split: Split | None = None) -> Answers:
        """Image by image, with small pictures of what a report shows."""
        split = split or self.split
        answers = MultiLabelAnswers(self.predictions, self.labels, probabilities=self.probabilities)
        if split is None:
            return answers
        paths = tuple(split.where(int(position)) for position in self.positions)
        answers = MultiLabelAnswers(self.predictions, self.labels, paths, probabilities=self.probabilities)
        return answers.with_pictures(lambda number: split.picture(int(self.positions[number])))

    def records(self) -> list[dict[str, Any]]:
        """A row for each image: where it is, its labels, the answers, and the probability of every class."""
        names = self._names()
        where = self.split.where if self.split else lambda position: f"item {position}"
        return [
            {
                "path": where(int(position)),
                "truth": _joined(names, truth),
                "right": bool((truth == answer).all()),
                "answer": _joined(names, answer),
                **{f"probability of {name}": float(share) for name, share in zip(names, shares, strict=True)},
            }
            for position, truth, answer, shares in zip(self.positions, self.labels, self.predictions, self.probabilities, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; scores are fractions."""
        columns = {
            "images": self.labels.sum(axis=0, dtype=np.int64),
            "average_precision": self.average_precision,
            "threshold": self.thresholds,
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1_per_class,
        }
        return {
            "pictures": len(self.labels),
            "skipped": self.skipped,
            "dtype": self.dtype,
            "loss": self.loss,
            "mean_average_precision": self.mean_average_precision,
            "f1": self.f1,
            "exact": self.exact,
            "top1": self.top1,
            "classes": {
                name: {key: _plain(values[number]) for key, values in columns.items()} for number, name in enumerate(self._names())
            },
        }

    def _names(self) -> list[str]:
        return list(self.class_names) or [str(index) for index in range(self.labels.shape[1])]


@torch.no_grad()
def evaluate_multi_label(
    model: nn.Module,
    loader: Any,
    *,
    forward: Callable[[Tensor], Tensor] | None = None,
    precision: AbstractContextManager[Any] | None = None,
    gather: Callable[[list[np.ndarray]], list[np.ndarray]] | None = None,
) -> MultiLabelEvaluation:
    """Every image of the loader once; thresholds are the model's own."""
    losses, shares, labels, indices = [], [], [], []
    with evaluating(model), precision or nullcontext():
        for batch in loader.epoch(0):
            logits = (forward or model)(batch.images).float()  # (B, K)
            losses.append(F.binary_cross_entropy_with_logits(logits, batch.labels.float(), reduction="none").mean(dim=1))
            shares.append(logits.sigmoid())
            labels.append(batch.labels)
            indices.append(batch.indices.to(logits.device))
    if not labels:
        raise DataError("none of the images can be read", "check the files named above")
    columns = [to_numpy(torch.cat(column)) for column in (indices, losses, shares, labels)]
    columns = gather(columns) if gather is not None else columns
    positions, first = np.unique(columns[0], return_index=True)  # several processes may see an image twice
    loss, probabilities, truth = (column[first] for column in columns[1:])
    if lost := int((~np.isfinite(probabilities)).any(axis=1).sum()):
        raise FailedError(
            f"the model's output is NaN or infinite for {lost:,} of {len(truth):,} images", "its training diverged: lower the learning rate"
        )
    origin = getattr(model, "origin", None)
    thresholds = np.array(origin.thresholds if origin is not None and origin.multi_label else [NEUTRAL] * truth.shape[1])
    mean = float(loss.astype(np.float64).mean())
    return MultiLabelEvaluation(mean, probabilities, truth.astype(np.uint8), thresholds, tuple(loader.class_names), positions)


def average_precision(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(K,): Σ (recallₙ − recallₙ₋₁) · precisionₙ down the ranking of each class, images of one probability taken together."""
    precisions = np.full(labels.shape[1], np.nan)
    for number in np.flatnonzero(labels.any(axis=0)):
        order = np.argsort(-probabilities[:, number], kind="stable")
        ranked, hits = probabilities[order, number], np.cumsum(labels[order, number], dtype=np.int64)
        last = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)  # of each group of equal ones
        gained = np.diff(hits[last], prepend=0) / hits[-1]
        precisions[number] = (gained * hits[last] / (last + 1)).sum()
    return precisions


def settle_thresholds(model: Classifier, validation: Any) -> None:
    """From which probability on each class is an answer, by the final weights on validation: the model remembers it."""
    assert isinstance(validation, MultiLabelEvaluation)
    model.origin = dataclasses.replace(model.origin, thresholds=choose_thresholds(validation.probabilities, validation.labels))


def choose_thresholds(probabilities: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    """For each class the threshold of the best F1 on these images, between two of them; of equally good ones the nearest to 0.5."""
    chosen = []
    for shares, truth in zip(probabilities.T.astype(np.float64), labels.T, strict=True):
        if not truth.any() or truth.all():
            chosen.append(NEUTRAL)
            continue
        order = np.argsort(-shares, kind="stable")
        ranked, hits = shares[order], np.cumsum(truth[order], dtype=np.int64)
        last = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)
        f1 = 2 * hits[last] / (last + 1 + hits[-1])
        between = (ranked[last] + np.append(ranked[last[:-1] + 1], ranked[-1])) / 2
        best = np.flatnonzero(f1 >= f1.max() - 1e-12)
        chosen.append(float(between[best[np.abs(between[best] - NEUTRAL).argmin()]]))
    return tuple(chosen)


def _joined(names: list[str], answers: np.ndarray) -> str:
    return LABEL_JOINER.join(names[number] for number in np.flatnonzero(answers))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)


def mean_without_nan(values: np.ndarray) -> float:
    """NaN where nothing is known."""
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else float("nan")


def _plain(value: Any) -> float | int | None:
    if isinstance(value, np.integer):
        return int(value)
    return None if np.isnan(value) else float(value)
