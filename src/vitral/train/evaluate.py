"""Scoring a model on a split: which pictures, in which precision, with what temperature."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from vitral.base.device import pick_device
from vitral.base.errors import DataError, FailedError, UsageError, need_model
from vitral.base.numbers import to_double, to_numpy
from vitral.base.progress import say
from vitral.config import DataConfig
from vitral.config.formats import Precision
from vitral.cost.precision import Answering, has_bf16, worth_bf16
from vitral.data.class_names import match_classes
from vitral.data.images.preprocess import Preprocess
from vitral.data.loader import Batch, Loader
from vitral.data.sources.torch_dataset import class_names, own_name, part_of
from vitral.data.splits.split import Split, check
from vitral.model.classifier import Classifier, evaluating
from vitral.run.answers import stored_classes
from vitral.train.judged import as_trained
from vitral.train.multi_label import MultiLabelEvaluation, evaluate_multi_label
from vitral.train.parallel import World
from vitral.train.scores import Evaluation, calibration_of

_EVALUATION_BATCH = 1000
"""Images evaluated at a time where nothing else is asked for, and by a run that learns from fewer: there are no gradients to keep."""
PIXELS = 100
"""Images without a negative value that reach beyond this hold pixels from 0 to 255."""


Scored = Evaluation | MultiLabelEvaluation
"""What a model is worth: one class a picture, or several labels."""


def evaluate(
    model: nn.Module,
    data: str | DataConfig | Dataset[Any],
    split: str | None = None,
    *,
    batch_size: int = _EVALUATION_BATCH,
    device: str | None = None,
    workers: int = 0,
    root: str | None = None,
    on_bad_image: Literal["fail", "skip"] = "skip",
    calibrate: bool = False,
    tta: Literal["flip"] | None = None,
    precision: Precision = "auto",
) -> Scored:
    """How good a model is on a data set: a name, `folder:PATH`, a DataConfig, or a torch Dataset of (image, label).

    `split`: all, test, validation, train, sealed. None: the test split of data that has one, and of data that the model itself learnt from;
    else everything: a folder is divided for a training alone. Classes are matched by name; some of the model's are enough.
    Of a Dataset, PIL images, arrays and uint8 tensors are prepared as the model wants them; float tensors are taken as they are.
    `batch_size`: images at a time, fewer need less memory. `device` None: where the model is. `on_bad_image`: unreadable files are named
    and counted in `skipped`, or end it.
    `calibrate`: probabilities at the temperature that suits the validation split best. `tta` flip: the mean of each image's
    probabilities and its mirror image's. A model that gives several labels a picture gets a `MultiLabelEvaluation`.
    `precision` auto: bf16 on a GPU that has it, and on a CPU that is quicker with it once a first batch has had the same answers in both.
    """
    if not isinstance(model, nn.Module):
        need_model(model)
    if isinstance(data, Path):
        data = str(data)  # told how a folder is named
    if device is not None:
        model = model.to(pick_device(device))
    target = next(model.parameters()).device
    if calibrate and _is_multi_label(model):
        raise UsageError("a temperature belongs to one class a picture", "leave it out: each of several labels has a threshold of its own")
    images, judged, temperature = None, None, 1.0
    if isinstance(data, str | DataConfig):
        classifier = _classifier(model)
        judged = as_trained(classifier, data, split, root, on_bad_image)
        images = match_split(classifier, judged.open(), judged.name)
        loader = Loader(images, batch_size=batch_size, device=target, workers=workers)
    elif calibrate:
        raise UsageError("a Dataset has no validation split to fit a temperature on", "name the data, or give folder:PATH")
    else:
        loader = _own_loader(model, data, target, batch_size, workers)
        images = getattr(loader, "split", None)
    around = mirrored if tta == "flip" else lambda model: model
    if precision == "auto" and target.type != "cpu":
        precision = "bf16" if has_bf16(target) else "fp32"
    answer = Answering(around(model), target, precision, worth=worth_bf16(model), answers=not _is_multi_label(model))
    if calibrate and judged is not None and images is not None:
        if images.name in ("all", "validation"):
            scored = f"a temperature cannot be fitted on pictures that are then scored ({images.name})"
            raise UsageError(scored, "score another split: --split test")
        held = match_split(_classifier(model), judged.open("validation"), judged.name)
        logits = _read_logits(model, Loader(held, batch_size=batch_size, device=target, workers=workers), answer)
        temperature = fit_temperature(*logits)
    result = evaluate_loader(model, loader, forward=answer, temperature=temperature)
    skipped = len(images.bad) if images is not None else 0
    return dataclasses.replace(result, dtype=answer.name, split=images, skipped=skipped)


def _classifier(model: nn.Module) -> Classifier:
    if not isinstance(model, Classifier):
        raise UsageError(
            f"how a {type(model).__name__} wants its images is not known",
            "bring it with vitral.adopt, or give a Dataset of float tensors that are ready for it",
        )
    return model


def match_split(model: Classifier, split: Split, data: str) -> Split:
    """The split with the model's own class numbers."""
    names = split.class_names
    if not model.config.classes:
        raise UsageError(
            "this model has no head: it gives features, not classes", "give it one: vitral probe --save, vitral train finetune"
        )
    if split.multi_label and not model.origin.multi_label:
        raise UsageError(
            f"{data} has several labels a picture, and the model gives one class", f"fine-tune it: vitral train finetune --data {data}"
        )
    present = np.flatnonzero(split.counts()) if model.origin.classes.value else np.arange(len(names))
    numbers = np.zeros(len(names), np.int64)
    own_numbers = match_classes("the model", model.origin.classes.value, model.config.classes, data, [names[label] for label in present])
    numbers[present] = own_numbers
    ours = tuple(map(model.origin.class_name, range(model.config.classes))) if model.origin.classes.value else names
    if not model.origin.multi_label:
        return dataclasses.replace(split, labels=numbers[split.labels], class_names=ours)
    labels = np.zeros((len(split), len(ours)), np.uint8)
    labels[:, own_numbers] = split.labels[:, present] if split.multi_label else split.labels[:, None] == present
    return dataclasses.replace(split, labels=labels, class_names=ours)


def _is_multi_label(model: nn.Module) -> bool:
    return isinstance(model, Classifier) and model.origin.multi_label


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
    images = Split(name, part.reader, part.indices, part.labels, names, Preprocess.of(_classifier(model)))
    return Loader(images, batch_size=batch_size, device=device, workers=workers)


class _ReadyLoader:
    """Batches of a Dataset whose float tensors are what the model wants."""

    def __init__(self, dataset: Any, class_names: tuple[str, ...], device: torch.device, batch_size: int, workers: int) -> None:
        self.batches = DataLoader(dataset, batch_size, num_workers=workers)
        self.class_names, self.device = class_names, device

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, _: int) -> Iterator[Batch]:
        seen = 0
        for images, labels in self.batches:
            lowest, highest = (float(value) for value in images.aminmax())
            if not math.isfinite(lowest + highest):
                raise DataError(f"images {seen} to {seen + len(labels) - 1} hold values that are NaN or infinite", "look at what made them")
            if not seen and lowest >= 0 and (highest <= 1 or highest > PIXELS):
                reach = "lie between 0 and 1" if highest <= 1 else f"reach up to {highest:.4g}"
                say(f"note: the images {reach}, as if nothing had normalised them; vitral.transform(model) does")
            yield Batch(images.to(self.device), labels.to(self.device), None, None, torch.arange(seen, seen := seen + len(labels)))


def evaluation_batch(batch_size: int) -> int:
    """Images evaluated at a time by a run that learns from `batch_size`."""
    return max(batch_size, _EVALUATION_BATCH // max(1, batch_size) * batch_size)


def evaluation_loader(
    split: Split, preprocess: Preprocess, device: torch.device, batch_size: int, workers: int = 0, world: World | None = None
) -> Loader:
    """Every image once, in order, not augmented; in batches that suit one who learns from `batch_size`."""
    loader = Loader(split.with_preprocess(preprocess), batch_size=evaluation_batch(batch_size), device=device, workers=workers)
    return loader.for_rank(world.rank, world.size) if world else loader


@torch.no_grad()
def evaluate_loader(
    model: nn.Module,
    loader: Any,
    *,
    forward: Callable[[Tensor], Tensor] | None = None,
    precision: AbstractContextManager[Any] | None = None,
    gather: Callable[[list[np.ndarray]], list[np.ndarray]] | None = None,
    temperature: float = 1.0,
) -> Scored:
    """Every image of the loader once. The device is read once, at the end. `forward`: a compiled stand-in for `model`;
    `gather` joins the arrays of several processes; logits are divided by `temperature`."""
    if getattr(loader, "multi_label", False):
        return evaluate_multi_label(model, loader, forward=forward, precision=precision, gather=gather)
    forward = forward or model
    losses, ranks, tops, shares, labels, indices = [], [], [], [], [], []
    classes = 0
    with evaluating(model), precision or nullcontext():
        for batch in loader.epoch(0):
            logits = forward(batch.images).float() / temperature  # (B, K)
            classes = logits.shape[1]
            own = logits.gather(1, batch.labels[:, None])
            share, top = logits.softmax(dim=1).topk(stored_classes(classes), dim=1)
            losses.append(F.cross_entropy(logits, batch.labels, reduction="none"))
            ranks.append((logits > own).sum(dim=1))
            tops.append(top)
            shares.append(share)
            labels.append(batch.labels)
            indices.append(batch.indices.to(top.device))
    if not labels:
        raise DataError("none of the images can be read", "check the files named above")
    columns = [to_numpy(torch.cat(column)) for column in (indices, losses, ranks, tops, shares, labels)]
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
        calibration=calibration_of(confidence, answer == label),
        predictions=answer,
        labels=label,
        class_names=loader.class_names,
        positions=positions,
        top=top,
        probabilities=share,
        temperature=temperature,
    )


def mirrored(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Logits of the mean of two probabilities: of an image and of its mirror image."""

    def forward(images: Tensor) -> Tensor:
        both = torch.stack([model(images).float(), model(images.flip(-1)).float()])
        if _is_multi_label(model):
            return both.sigmoid().mean(dim=0).logit(eps=1e-7)
        return both.log_softmax(dim=-1).logsumexp(dim=0) - math.log(2)

    return forward


@torch.no_grad()
def _read_logits(model: nn.Module, loader: Any, forward: Callable[[Tensor], Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """(N, K) and the labels (N,)."""
    with evaluating(model):
        pairs = [((forward or model)(batch.images).float(), batch.labels) for batch in loader.epoch(0)]
    return torch.cat([logits for logits, _ in pairs]), torch.cat([labels for _, labels in pairs])


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The number that logits are divided by to make the loss on these images smallest (Guo et al. 2017)."""
    logits, labels = to_double(logits), labels.cpu()
    if (logits.argmax(dim=1) == labels).all():
        say("note: every validation picture is right, so that the surest model would suit it best: the temperature stays 1")
        return 1.0
    logarithms = torch.linspace(math.log(0.05), math.log(20), 121, dtype=torch.float64)  # host
    for _ in range(3):  # a grid, then ever finer ones around its best: the loss has one valley
        losses = torch.stack([F.cross_entropy(logits / value.exp(), labels) for value in logarithms])
        step, best = logarithms[1] - logarithms[0], logarithms[losses.argmin()]
        logarithms = torch.linspace(float(best - step), float(best + step), 41, dtype=torch.float64)  # host
    return float(best.exp())
