"""How good are frozen features? A linear probe and nearest neighbours on k pictures a class, with intervals over the draws.

Everything is chosen on validation: ridge or logistic regression, their strength, the number of neighbours. The test pictures are
opened once, after all choices are made.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from vitral.base.errors import UsageError
from vitral.base.progress import progress
from vitral.data.datasets import Data
from vitral.data.loader import Loader
from vitral.data.preprocess import Preprocess
from vitral.data.split import Split
from vitral.model.classifier import Classifier
from vitral.study.statistics import paired_bootstrap, t_interval
from vitral.train.probe import read_features

RIDGE = tuple(10.0**power for power in range(-3, 4))
LOGISTIC = (0.01, 0.1, 1.0, 10.0)
NEIGHBOURS = (1, 3, 5, 10, 20)
LOGISTIC_LIMIT = 20_000
"""Training pictures above which only the closed-form ridge is tried: the iterations would take minutes and win nothing."""
Predict = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Score:
    """Accuracy on test of one kind of classifier."""

    mean: float
    interval: tuple[float, float]
    over: str
    """What the interval is over: draws of the shots, or test pictures when all were used."""
    accuracies: tuple[float, ...]
    chosen: tuple[str, ...]
    """What validation chose, draw by draw."""


@dataclass(frozen=True)
class Shots:
    shots: int | None
    """Pictures per class; None: all."""
    pictures: int
    linear: Score
    neighbours: Score


@dataclass(frozen=True)
class Probe:
    model: str
    data: str
    width: int
    rows: tuple[Shots, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        lines = [f"{self.model} on {self.data}: frozen features of width {self.width}, test accuracy with 95 % interval"]
        for row in self.rows:
            name = "all" if row.shots is None else f"{row.shots} a class"
            scores = "   ".join(
                f"{kind} {score.mean:.2%} ({score.interval[0]:.2%} – {score.interval[1]:.2%}, over {score.over})"
                for kind, score in (("linear", row.linear), ("kNN", row.neighbours))
            )
            lines.append(f"  {name:>10}, {row.pictures:,} pictures:  {scores}")
        return "\n".join(lines) + "\n"


def embed(
    model: Classifier, split: Split, *, device: torch.device | str = "cpu", batch_size: int = 128, quiet: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """What the head would read, for every picture: features (N, D) and labels (N,)."""
    loader = Loader(split, batch_size=min(batch_size, len(split)), preprocess=Preprocess.of(model), device=device)
    features, labels = read_features(model, loader, quiet=quiet)
    return features.cpu().numpy(), labels.cpu().numpy()


def probe(
    model: Classifier,
    data: Data,
    *,
    shots: Sequence[int | None] = (1, 5, 10, None),
    draws: int = 5,
    device: torch.device | str = "cpu",
    batch_size: int = 128,
    quiet: bool = False,
    name: str = "model",
) -> Probe:
    """Linear probe and kNN for each number of shots; `None` is all training pictures."""
    if not shots:
        raise UsageError("no number of shots given", "use --shots 1,5,10,all")
    if draws < 2:
        raise UsageError(f"{draws} draw gives no interval", "use --draws 5")
    if not len(data.validation):
        raise UsageError(f"{data.name} has no validation pictures, and nothing may be chosen on test", "set --validation 0.1")
    smallest = int(np.bincount(data.train.labels, minlength=len(data.class_names)).min())
    if wrong := next((k for k in shots if k is not None and not 1 <= k <= smallest), None):
        raise UsageError(
            f"{wrong} pictures a class asked for, the smallest class has {smallest} for training", f"use --shots of 1 to {smallest}, or all"
        )
    train, labels = embed(model, data.train, device=device, batch_size=batch_size, quiet=quiet)
    judge, judge_labels = embed(model, data.validation, device=device, batch_size=batch_size, quiet=quiet)
    classes = len(data.class_names)
    fitted: list[tuple[int | None, int, list[tuple[Predict, str]], list[tuple[Predict, str]]]] = []
    with progress("Probing", total=sum(1 if k is None else draws for k in shots), quiet=quiet) as bar:
        for k in shots:
            linear, near, size = [], [], 0
            for draw in range(1 if k is None else draws):
                chosen = np.arange(len(labels)) if k is None else draw_shots(labels, k, draw)
                size = len(chosen)
                scaler = Scaler(train[chosen])
                x, y, v = scaler(train[chosen]), labels[chosen], scaler(judge)
                linear.append(_with(scaler, *best_linear(x, y, v, judge_labels, classes)))
                near.append(_with(scaler, *best_neighbours(x, y, v, judge_labels, classes)))
                bar.advance()
            fitted.append((k, size, linear, near))
    test, test_labels = embed(model, data.test(), device=device, batch_size=batch_size, quiet=quiet)
    rows = tuple(Shots(k, size, _score(linear, test, test_labels), _score(near, test, test_labels)) for k, size, linear, near in fitted)
    return Probe(name, data.name, train.shape[1], rows)


def draw_shots(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """`count` positions of each class."""
    rng = np.random.default_rng([seed, count])
    return np.sort(np.concatenate([rng.choice(np.flatnonzero(labels == label), count, replace=False) for label in np.unique(labels)]))


class Scaler:
    """Each feature centred and brought to spread 1, which even with one picture a class did better than one spread for all of them."""

    def __init__(self, features: np.ndarray) -> None:
        self.mean = features.mean(axis=0)
        self.spread = np.maximum(features.std(axis=0), 1e-6)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return ((features - self.mean) / self.spread).astype(np.float64)


def best_linear(x: np.ndarray, y: np.ndarray, judge: np.ndarray, judge_labels: np.ndarray, classes: int) -> tuple[Predict, str]:
    """The ridge or logistic regression that is best on validation."""
    options = [*_ridges(x, y, classes), *(_logistics(x, y) if len(x) <= LOGISTIC_LIMIT and len(np.unique(y)) > 1 else ())]
    return max(options, key=lambda option: (option[0](judge) == judge_labels).mean())


def _ridges(x: np.ndarray, y: np.ndarray, classes: int) -> list[tuple[Predict, str]]:
    """Closed form for all strengths at once: one singular value decomposition."""
    targets = np.eye(classes)[y] - 1 / classes
    left, values, right = np.linalg.svd(x, full_matrices=False)
    projected = left.T @ targets
    options: list[tuple[Predict, str]] = []
    for strength in RIDGE:
        weights = right.T @ ((values / (values**2 + strength * len(x)))[:, None] * projected)  # (D, K)
        options.append((lambda features, weights=weights: (features @ weights).argmax(axis=1), f"ridge {strength:g}"))
    return options


def _logistics(x: np.ndarray, y: np.ndarray) -> list[tuple[Predict, str]]:
    from sklearn.linear_model import LogisticRegression

    options: list[tuple[Predict, str]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an early stop of the solver is one more setting, judged on validation like the rest
        for strength in LOGISTIC:
            options.append((LogisticRegression(C=strength, max_iter=300).fit(x, y).predict, f"logistic {strength:g}"))
    return options


def best_neighbours(x: np.ndarray, y: np.ndarray, judge: np.ndarray, judge_labels: np.ndarray, classes: int) -> tuple[Predict, str]:
    """The number of neighbours (by cosine) that is best on validation."""
    options = [(_neighbours(x, y, k, classes), f"k={k}") for k in NEIGHBOURS if k <= len(x)]
    return max(options, key=lambda option: (option[0](judge) == judge_labels).mean())


def _neighbours(x: np.ndarray, y: np.ndarray, k: int, classes: int) -> Predict:
    bank, one_hot = _unit(x), np.eye(classes)[y]

    def predict(features: np.ndarray) -> np.ndarray:
        answers = []
        for start in range(0, len(features), 512):
            near = _unit(features[start : start + 512]) @ bank.T  # (b, n)
            top = np.argpartition(-near, k - 1, axis=1)[:, :k]
            # Each neighbour's vote counts a little more the nearer it is, which settles ties.
            votes = (1 + 1e-3 * np.take_along_axis(near, top, axis=1))[..., None] * one_hot[top]  # (b, k, K)
            answers.append(votes.sum(axis=1).argmax(axis=1))
        return np.concatenate(answers)

    return predict


def _unit(features: np.ndarray) -> np.ndarray:
    return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)


def _with(scaler: Scaler, predict: Predict, name: str) -> tuple[Predict, str]:
    return lambda features: predict(scaler(features)), name


def _score(fitted: list[tuple[Predict, str]], test: np.ndarray, labels: np.ndarray) -> Score:
    correct = np.stack([predict(test) == labels for predict, _ in fitted])  # (draws, N)
    accuracies = tuple(float(value) for value in correct.mean(axis=1))
    names = tuple(name for _, name in fitted)
    if len(fitted) > 1:
        interval = t_interval(accuracies)
        return Score(interval.mean, (interval.low, interval.high), f"{len(fitted)} draws", accuracies, names)
    against_none = paired_bootstrap(correct[0], np.zeros_like(correct[0]), claim=False)
    return Score(accuracies[0], (against_none.low, against_none.high), "test pictures", accuracies, names)
