"""What a model is worth that gives each image one class: loss, top-1 and top-5, per class, confusion, calibration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vitral.base.records import ranked
from vitral.base.text import html, percent, table
from vitral.data.splits.split import Split
from vitral.run.answers import Answers

_BINS = 15


@dataclass(frozen=True)
class Evaluation:
    """How good a model is on a data set, and each of its answers."""

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
    class_names: tuple[str, ...] = ()
    positions: np.ndarray = field(default_factory=lambda: np.arange(0))
    """(N,) where each image is in the split: unreadable ones are missing."""
    top: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """(N, k) classes, most probable first: all of them, or the five best of many."""
    probabilities: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    """(N, k) of these."""
    temperature: float = 1.0
    """What the logits were divided by."""
    split: Split | None = field(default=None, repr=False)
    """What was scored, where it was opened here."""
    skipped: int = 0
    """Images that could not be read."""
    dtype: str | None = None
    """What it was computed in: fp32 or bf16; None: as the run that asked."""

    @property
    def precision(self) -> np.ndarray:
        """(K,) share of right ones among the answers of each class; NaN where it is never the answer."""
        answers = self.confusion.sum(axis=0)
        return np.divide(np.diag(self.confusion), answers, out=np.full(len(answers), np.nan), where=answers > 0)

    @property
    def f1_per_class(self) -> np.ndarray:
        """(K,) harmonic mean of precision and recall (`per_class`); NaN where a class has no image."""
        both = self.confusion.sum(axis=0) + self.confusion.sum(axis=1)
        f1 = np.divide(2 * np.diag(self.confusion), both, out=np.zeros(len(both)), where=both > 0)
        return np.where(self.confusion.sum(axis=1) > 0, f1, np.nan)

    @property
    def f1(self) -> float:
        """Mean over the classes that have images."""
        return float(np.nanmean(self.f1_per_class))

    @property
    def balanced_accuracy(self) -> float:
        """Mean of the classes' accuracies: each counts alike, however many images it has."""
        return float(np.nanmean(self.per_class))

    @property
    def score(self) -> float:
        """What the best weights are chosen by."""
        return self.top1

    @property
    def journal(self) -> dict[str, float]:
        """What a line of a run's journal says besides loss and accuracy."""
        return {"top5": self.top5}

    @property
    def headline(self) -> str:
        return f"accuracy {percent(self.top1)}"

    def __repr__(self) -> str:
        return f"Evaluation(top1 {percent(self.top1)}, top5 {percent(self.top5)}, loss {self.loss:.4f}, {len(self.labels):,} images)"

    def _repr_html_(self) -> str:
        """In a notebook: the scores, then the classes, the worst first."""
        values = self.to_dict()
        worst = sorted((value, name) for name, value in values["per_class"].items() if value is not None)[:20]

        lines = [[name, percent(value), percent(values["precision"][name]), percent(values["f1_per_class"][name])] for value, name in worst]
        error = self.calibration["error"]
        scores = f"balanced accuracy {percent(self.balanced_accuracy)}, F1 {percent(self.f1)}, calibration error {error:.3f}"
        return html(f"{self!r}\n{scores}\n{table(lines, ['class', 'recall', 'precision', 'F1'], 'lr')}")

    def answers(self, split: Split | None = None) -> Answers:
        """Image by image, with small pictures of what a report shows."""
        split = split or self.split
        if split is None:
            return Answers(self.predictions, self.labels, (), self.top, self.probabilities)
        paths = tuple(split.where(int(position)) for position in self.positions)
        answers = Answers(self.predictions, self.labels, paths, self.top, self.probabilities)
        return answers.with_pictures(lambda number: split.picture(int(self.positions[number])))

    def records(self) -> list[dict[str, Any]]:
        """A row for each image: where it is, what it is, the answer, and the most probable classes."""
        names = self.class_names or [str(index) for index in range(len(self.per_class))]
        where = self.split.where if self.split else lambda position: f"item {position}"
        rows = []
        for position, label, top, shares in zip(self.positions, self.labels, self.top[:, :5], self.probabilities[:, :5], strict=True):
            pairs = [(names[number], float(share)) for number, share in zip(top, shares, strict=True)]
            rows.append({"path": where(int(position)), "truth": names[label], "right": bool(label == top[0]), **ranked(pairs)})
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; accuracies are fractions."""
        names = self.class_names or [str(index) for index in range(len(self.per_class))]

        def named(values: np.ndarray) -> dict[str, float | None]:
            return {name: None if np.isnan(value) else float(value) for name, value in zip(names, values, strict=False)}

        return {
            "pictures": len(self.labels),
            "skipped": self.skipped,
            "dtype": self.dtype,
            "loss": self.loss,
            "top1": self.top1,
            "top5": self.top5,
            "balanced_accuracy": self.balanced_accuracy,
            "f1": self.f1,
            "per_class": named(self.per_class),
            "precision": named(self.precision),
            "f1_per_class": named(self.f1_per_class),
            "temperature": self.temperature,
            "confusion": self.confusion.tolist(),
            "calibration": {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in self.calibration.items()},
        }


def calibration_of(confidence: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Does a confidence of 80 % mean right 80 % of the time? Equal bins of confidence."""
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    count = np.bincount(bins, minlength=_BINS)
    mean_confidence = np.bincount(bins, weights=confidence, minlength=_BINS) / np.maximum(count, 1)
    accuracy = np.bincount(bins, weights=right.astype(float), minlength=_BINS) / np.maximum(count, 1)
    error = float((count * np.abs(mean_confidence - accuracy)).sum() / max(1, count.sum()))
    return {"error": error, "confidence": mean_confidence, "accuracy": accuracy, "count": count}
