"""How good a model is on a split: loss, top-1 and top-5, per class, confusion, calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from vitral.base.device import pick_device
from vitral.base.errors import FailedError, UsageError, one_of
from vitral.base.progress import say
from vitral.base.text import few
from vitral.config import DataConfig
from vitral.cost.precision import autocast, dtype_of
from vitral.data.datasets import open_data
from vitral.data.loader import Batch, Loader
from vitral.data.own_dataset import class_names, own_name, part_of
from vitral.data.preprocess import Preprocess
from vitral.data.split import Split, check
from vitral.model.classifier import Classifier, evaluating
from vitral.run.answers import Answers, kept
from vitral.train.parallel import World

BINS = 15
EVALUATION_BATCH = 1000
"""Images evaluated at a time by a run that learns from fewer: there are no gradients to keep."""


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
    class_names: tuple[str, ...] = ()
    positions: np.ndarray = field(default_factory=lambda: np.arange(0))
    """(N,) where each image is in the split: unreadable ones are missing."""
    top: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """(N, k) classes, most probable first: all of them, or the five best of many."""
    probabilities: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    """(N, k) of these."""

    def __repr__(self) -> str:
        return f"Evaluation(top1 {self.top1:.2%}, top5 {self.top5:.2%}, loss {self.loss:.4f}, {len(self.labels):,} images)"

    def answers(self, split: Split) -> Answers:
        """Image by image, with small pictures of what a report shows."""
        paths = tuple(split.where(int(position)) for position in self.positions)
        found = Answers(self.predictions, self.labels, paths, self.top, self.probabilities)
        return found.with_pictures(lambda number: split.picture(int(self.positions[number])))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; accuracies are fractions."""
        names = self.class_names or [str(index) for index in range(len(self.per_class))]
        return {
            "pictures": len(self.labels),
            "loss": self.loss,
            "top1": self.top1,
            "top5": self.top5,
            "per_class": {name: None if np.isnan(value) else float(value) for name, value in zip(names, self.per_class, strict=False)},
            "confusion": self.confusion.tolist(),
            "calibration": {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in self.calibration.items()},
        }


def evaluate(
    model: nn.Module,
    data: str | DataConfig | Dataset[Any],
    split: Literal["test", "validation", "train"] = "test",
    *,
    batch_size: int = 128,
    device: str | None = None,
    workers: int = 0,
) -> Evaluation:
    """How good a model is on a data set: a name, `folder:PATH`, a DataConfig, or a torch Dataset of (image, label).

    Of a Dataset, PIL images, arrays and uint8 tensors are prepared as the model wants them; float tensors are taken as they are.
    `device` None: where the model is.
    """
    if device is not None:
        model = model.to(pick_device(device))
    place = next(model.parameters()).device
    if isinstance(data, str | DataConfig):
        images = _open_split(_known(model), DataConfig(name=data) if isinstance(data, str) else data, split)
        loader = evaluation_loader(images, images.preprocess, place, batch_size, workers)
    else:
        loader = _own_loader(model, data, place, batch_size, workers)
    return evaluate_loader(model, loader, precision=autocast(dtype_of("auto", place), place))


def _known(model: nn.Module) -> Classifier:
    if not isinstance(model, Classifier):
        raise UsageError(
            f"how a {type(model).__name__} wants its images is not known",
            "bring it with vitral.adopt, or give a Dataset of float tensors that are ready for it",
        )
    return model


def _open_split(model: Classifier, config: DataConfig, split: str) -> Split:
    data = open_data(config, preprocess=Preprocess.of(model))
    if model.config.classes != len(data.class_names):
        raise UsageError(
            f"the model has {model.config.classes} classes, {config.name} has {len(data.class_names)}",
            "use the data it was trained on, or fine-tune it",
        )
    if note := compare_names("the model", model.origin.classes.value, config.name, data.class_names):
        say(note)
    if split not in ("test", "validation", "train"):
        raise one_of("split", split, ("test", "validation", "train"))
    chosen = data.test() if split == "test" else getattr(data, split)
    if not len(chosen):
        raise UsageError(f"{config.name} has no {split} images", "choose another split")
    return chosen


def _own_loader(model: nn.Module, data: Any, device: torch.device, batch_size: int, workers: int) -> Any:
    """Batches of a Dataset; its images are prepared unless they are float tensors."""
    name = own_name(data)
    part = part_of(data, name)
    if isinstance(model, Classifier):
        names = tuple(map(model.origin.class_name, range(model.config.classes)))
    else:
        names = class_names(data, part.labels)
    check(part.labels, names, name, whole=False)
    first = data[0][0]
    if isinstance(first, Tensor) and first.is_floating_point():
        return _ReadyLoader(data, names, device, batch_size, workers)
    images = Split(name, part.reader, part.indices, part.labels, names, Preprocess.of(_known(model)))
    return evaluation_loader(images, images.preprocess, device, batch_size, workers)


class _ReadyLoader:
    """Batches of a Dataset whose float tensors are what the model wants."""

    def __init__(self, dataset: Any, class_names: tuple[str, ...], device: torch.device, batch_size: int, workers: int) -> None:
        self.batches = DataLoader(dataset, batch_size, num_workers=workers)
        self.class_names, self.device = class_names, device

    def epoch(self, _: int) -> Iterator[Batch]:
        seen = 0
        for images, labels in self.batches:
            if not seen and images.min() >= 0 and images.max() <= 1:
                say("note: the images lie between 0 and 1, as if nothing had normalised them; vitral.transform(model) does")
            yield Batch(images.to(self.device), labels.to(self.device), None, None, torch.arange(seen, seen := seen + len(labels)))


def evaluation_batch(batch_size: int) -> int:
    """Images evaluated at a time by a run that learns from `batch_size`."""
    return max(batch_size, EVALUATION_BATCH // max(1, batch_size) * batch_size)


def evaluation_loader(
    split: Split, preprocess: Preprocess, device: torch.device, batch_size: int, workers: int = 0, world: World | None = None
) -> Loader:
    """Every image once, in order, not augmented."""
    return Loader(
        split,
        batch_size=evaluation_batch(batch_size),
        preprocess=preprocess,
        device=device,
        workers=workers,
        rank=world.rank if world else 0,
        world=world.size if world else 1,
    )


@torch.no_grad()
def evaluate_loader(
    model: nn.Module,
    loader: Any,
    *,
    forward: Callable[[Tensor], Tensor] | None = None,
    precision: AbstractContextManager[Any] | None = None,
    gather: Callable[[list[np.ndarray]], list[np.ndarray]] | None = None,
) -> Evaluation:
    """Every image of the loader once. The device is read once, at the end. `forward`: a compiled stand-in for `model`;
    `gather` joins the arrays of several processes."""
    forward = forward or model
    losses, ranks, tops, shares, labels, indices = [], [], [], [], [], []
    classes = 0
    with evaluating(model), precision or nullcontext():
        for batch in loader.epoch(0):
            logits = forward(batch.images).float()  # (B, K)
            classes = logits.shape[1]
            own = logits.gather(1, batch.labels[:, None])
            share, top = logits.softmax(dim=1).topk(kept(classes), dim=1)
            losses.append(F.cross_entropy(logits, batch.labels, reduction="none"))
            ranks.append((logits > own).sum(dim=1))
            tops.append(top)
            shares.append(share)
            labels.append(batch.labels)
            indices.append(batch.indices.to(top.device))
    columns = [torch.cat(column).cpu().numpy() for column in (indices, losses, ranks, tops, shares, labels)]
    if gather is not None:
        columns = gather(columns)
    # Several processes may see an image twice (an even share for each): once is enough.
    positions, first = np.unique(columns[0], return_index=True)
    loss, rank, top, share, label = (column[first] for column in columns[1:])
    answer, confidence = top[:, 0], share[:, 0]
    if lost := int((~np.isfinite(confidence)).sum()):
        raise FailedError(
            f"the model's output is NaN or infinite for {lost:,} of {len(confidence):,} images",
            "its training diverged: lower the learning rate",
        )
    confusion = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(confusion, (label, answer), 1)
    totals = confusion.sum(axis=1)
    per_class = np.divide(np.diag(confusion), totals, out=np.full(classes, np.nan), where=totals > 0)
    return Evaluation(
        loss=float(loss.astype(np.float64).mean()),
        top1=float((answer == label).mean()),
        top5=float((rank < 5).mean()),
        per_class=per_class,
        confusion=confusion,
        calibration=calibrate(confidence, answer == label),
        predictions=answer,
        labels=label,
        class_names=loader.class_names,
        positions=positions,
        top=top,
        probabilities=share,
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
