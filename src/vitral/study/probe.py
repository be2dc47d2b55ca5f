"""How good are frozen features? A linear probe and nearest neighbours on k images per class, with intervals over the draws.

`probe` takes any model and data. It chooses strength and number of neighbours on validation and opens the test images once, after all
choices are made. `probe_run` takes a finished pre-training and its own data. It reads labels for the first time, chooses on a tenth of the
training images and answers on validation. The test split stays closed, unless a study asks for its final answers (`probe_finished`).
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitral.base import layout
from vitral.base.device import pick_device
from vitral.base.errors import DataError, UsageError
from vitral.base.numbers import to_numpy
from vitral.base.origin import fact
from vitral.base.progress import progress
from vitral.base.text import percent, table
from vitral.config import DataConfig, to_dict
from vitral.config.formats import Precision
from vitral.data.images.preprocess import Preprocess
from vitral.data.keys import generator
from vitral.data.loader import Loader
from vitral.data.sources.protocol import UNLABELLED
from vitral.data.splits.open import Data, open_data, open_source
from vitral.data.splits.split import Split
from vitral.model.classifier import Classifier
from vitral.run.answers import Answers
from vitral.run.folder import RunFolder, seen_by
from vitral.study.fight.folder import Result
from vitral.study.fight.statistics import accuracy_interval, images_interval
from vitral.train.evaluate import evaluate_loader, evaluation_loader
from vitral.train.judged import trained_on
from vitral.train.probe import TRIED_ON, Labelled, Linear, Neighbours, fit_linear, fit_neighbours, last_layer, read_features, settle
from vitral.train.scores import Evaluation
from vitral.weights.checkpoint import save as write_model
from vitral.weights.load import load

_BATCH = 128
_NEIGHBOURS = 20
_CHOOSING = 10
"""One in so many training pictures is held out to choose the strength of the linear probe,"""
_ENOUGH = 1000
"""and others in turn until so many have been: 129 of digits once chose a strength that cost three points."""


@dataclass(frozen=True)
class Score:
    """Accuracy on test of one kind of classifier."""

    mean: float
    interval: tuple[float, float]
    over: str
    """What the interval is over: draws of the shots, or test images when all were used."""
    accuracies: tuple[float, ...]
    chosen: tuple[str, ...]
    """What validation chose, draw by draw."""

    def __str__(self) -> str:
        return f"{percent(self.mean)} ({percent(self.interval[0])} – {percent(self.interval[1])}, over {self.over})"


def probe(
    model: str | Path | Classifier,
    data: str | Data,
    *,
    shots: Sequence[int | None] = (1, 5, 10, None),
    draws: int = 5,
    blocks: int = 1,
    batch_size: int = 128,
    precision: Precision = "auto",
    device: str = "auto",
    quiet: bool = False,
    name: str = "",
    save: str | Path | None = None,
    **data_settings: Any,
) -> Result:
    """Linear probe and nearest neighbours on a model's frozen features: `vitral probe` as a call. It leaves no folder.

    - model: a model, or anything that `vitral.load` takes.
    - data: a name from `vitral data list` or "folder:PATH".
    - shots: images per class to learn from; None: all of them. Each number is drawn `draws` times: the interval is over them.
    - blocks: of how many of the last blocks the features are read, side by side; 1: what the head reads.
    - save: a folder for the probe as a model: the frozen body with the head of the last of `shots`.
    - data_settings: `root`, `validation` (share of the training images to choose on), `split_seed`, `on_bad_image`.

        result = vitral.study.probe("runs/digits", "digits", shots=[1, 5, None])
        result.rows[0]["linear"]["mean"]
    """
    if save is not None and (Path(save) / layout.WEIGHTS).exists():
        raise UsageError(f"{save} already holds a model", "choose another folder to save the probe in")
    name = name or (f"{model.config.family} model" if isinstance(model, Classifier) else str(model))
    model = model if isinstance(model, Classifier) else load(model)
    if isinstance(data, str):
        seen = seen_by(model) if trained_on(model, data) else None
        config = DataConfig(name=data, **data_settings)
        data = open_data(config, preprocess=Preprocess.of(model), seen=seen if seen and seen.splits else None)
    _check(data, shots, draws)
    if save is not None and model.config.distillation_token:
        raise UsageError("a model with a distillation token has two heads, a probe is one", "leave --save out")
    if save is not None and blocks != 1:
        raise UsageError(f"a head reads one block, this probe reads {blocks}", "leave --save or --blocks out")
    classes, target = len(data.class_names), pick_device(device)

    def read(split: Split) -> Labelled:
        """What the head would read, of as many blocks as are asked for."""
        loader = Loader(split.with_preprocess(Preprocess.of(model)), batch_size=min(batch_size, len(split)), device=target)
        return read_features(model, loader, blocks=blocks, precision=precision, quiet=quiet)

    (features, labels), judge = read(data.train), read(data.validation)
    read_labels = to_numpy(labels)  # of those that could be read
    _check_shots(read_labels, classes, shots)
    fitted: list[tuple[int | None, int, list[Linear], list[Neighbours]]] = []
    with progress("Probing", total=sum(1 if k is None else draws for k in shots), quiet=quiet) as bar:
        for k in shots:
            linear, near, size = [], [], 0
            for draw in range(1 if k is None else draws):
                chosen = slice(None) if k is None else torch.from_numpy(draw_shots(read_labels, k, draw)).to(labels.device)
                train = features[chosen], labels[chosen]
                size = len(train[1])
                linear.append(fit_linear(train, judge, classes))
                near.append(fit_neighbours(train, judge, classes))
                bar.advance()
            fitted.append((k, size, linear, near))
    if save is not None:
        write_model(as_model(model, fitted[-1][2][0], data, fitted[-1][1]), save)
    test = read(data.test())
    scores = [(k, size, _score(linear, *test), _score(near, *test)) for k, size, linear, near in fitted]
    rows = [{"shots": k, "pictures": size, "linear": asdict(linear), "neighbours": asdict(near)} for k, size, linear, near in scores]
    lines = [["all" if k is None else f"{k} a class", f"{size:,}", str(linear), str(near)] for k, size, linear, near in scores]
    return Result(
        table(lines, ["shots", "pictures", "linear probe, 95 % interval", "nearest neighbours, 95 % interval"], "rrl"),
        {
            "model": name,
            "data": data.name,
            "blocks": blocks,
            "width": features.shape[1],
            "rows": rows,
            "conclusion": _conclude(name, data.name, scores[-1], blocks),
        },
    )


def as_model(body: Classifier, head: Linear, data: Data, images: int) -> Classifier:
    """The frozen body with a fitted probe for its head: a model like any other, which knows its classes and what it learnt from."""
    made = copy.copy(body)
    made.config = dataclasses.replace(body.config, head_hidden=0, head_bias=True)
    made = made.with_head(len(data.class_names)).cpu()
    head.write_into(last_layer(made))
    change = f"head: a linear probe of the frozen body ({head}), fitted on {images:,} pictures of {data.name}"
    classes = fact(data.class_names, f"the classes of {data.name}")
    made.origin = dataclasses.replace(body.origin.with_change(change), classes=classes, thresholds=(), data=to_dict(data.config))
    return made


def _check(data: Data, shots: Sequence[int | None], draws: int) -> None:
    data.require_single_label("a probe's accuracy")
    if not shots:
        raise UsageError("no number of shots given", "use --shots 1,5,10,all")
    if draws < 2:
        raise UsageError(f"{draws} draw gives no interval", "use --draws 5")
    if not len(data.validation):
        raise UsageError(f"{data.name} has no validation pictures, and nothing may be chosen on test", "set --validation 0.1")
    _check_shots(data.train.labels, len(data.class_names), shots)


def _check_shots(labels: np.ndarray, classes: int, shots: Sequence[int | None]) -> None:
    """Each class has as many pictures as are asked for."""
    smallest = int(np.bincount(labels, minlength=classes).min())
    if (wrong := next((k for k in shots if k is not None and not 1 <= k <= smallest), None)) is not None:
        raise UsageError(
            f"{wrong} pictures a class asked for, the smallest class has {smallest} for training", f"use --shots of 1 to {smallest}, or all"
        )


def draw_shots(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """`count` positions of each class."""
    rng = np.random.default_rng([seed, count])
    return np.sort(np.concatenate([rng.choice(np.flatnonzero(labels == label), count, replace=False) for label in np.unique(labels)]))


def _score(fitted: Sequence[Linear | Neighbours], features: Tensor, labels: Tensor) -> Score:
    correct = np.stack([to_numpy(option(features).eq(labels)) for option in fitted])  # (draws, N)
    accuracies, chosen = tuple(map(float, correct.mean(axis=1))), tuple(map(str, fitted))
    if len(fitted) > 1:
        interval = accuracy_interval(correct)
        return Score(interval.mean, (interval.low, interval.high), f"{len(fitted)} draws, test pictures", accuracies, chosen)
    interval = images_interval(correct[0])
    return Score(interval.mean, (interval.low, interval.high), "test pictures", accuracies, chosen)


def _conclude(model: str, data: str, most: tuple[int | None, int, Score, Score], blocks: int) -> str:
    _, size, linear, near = most
    read = f"of the last {blocks} blocks " if blocks > 1 else ""
    return (
        f"On {data} the frozen features {read}of {model} reach {percent(linear.mean)} with a linear probe and {percent(near.mean)} with "
        f"nearest neighbours, learning from {size:,} pictures."
    )


def probe_run(path: str | Path, *, device: str = "auto", quiet: bool = False) -> Result:
    """Probe the model of a finished pre-training on its own data, and write what came out into its folder (probe.json)."""
    folder = RunFolder.open(path)
    model = folder.model().to(pick_device(device))
    opened = labelled(folder, model)
    model_device = next(model.parameters()).device
    loaders = [evaluation_loader(split, opened.preprocess, model_device, _BATCH) for split in (opened.train, opened.validation)]
    (features, labels), (judged, answers) = (read_features(model, loader, quiet=quiet) for loader in loaders)
    classes = len(opened.class_names)
    options = {
        "linear": linear_of((features, labels), classes, folder.settled.data.split_seed),
        "neighbours": _nearest_of((features, labels), classes),
    }
    values: dict[str, Any] = {"data": opened.name, "split": "validation", "pictures": len(answers), "width": features.shape[1]}
    lines = []
    for name, option in options.items():
        correct = to_numpy(option(judged).eq(answers))
        interval = images_interval(correct)
        values[name] = {"accuracy": float(correct.mean()), "interval": [interval.low, interval.high], "settings": str(option)}
        lines.append([name, percent(correct.mean()), f"{percent(interval.low)} – {percent(interval.high)}", str(option)])
    folder.write_probe(values)
    return Result(table(lines, ["probe", "validation accuracy", "95 % over pictures", "with"], "lrll"), values)


def probe_finished(
    folder: RunFolder, *, test: bool, neighbours: bool = False, device: str = "auto"
) -> tuple[Classifier, dict[str, Evaluation]]:
    """The finished run's model with a linear probe for its head, and what that is worth on validation, where there is any. With `test`,
    on the test split too: it is opened here, once, and the answers go into the folder as those of a training do. With `neighbours`,
    what the nearest neighbours answer on the same test pictures goes beside them (neighbours.npz)."""
    body = folder.model().to(pick_device(device))
    opened = labelled(folder, body)
    opened.require_single_label("a probe's accuracy")

    train = read_features(body, _loader(opened, opened.train, device), quiet=True)
    head = linear_of(train, len(opened.class_names), folder.settled.data.split_seed)
    judged = _judged(folder, body, head, opened, len(train[1]), test, device)
    if test and neighbours:
        _write_neighbours(folder, body, train, opened, device)
    return judged


def _write_neighbours(folder: RunFolder, body: Classifier, train: Labelled, opened: Data, device: str) -> None:
    asked, labels = read_features(body, _loader(opened, opened.test(), device), quiet=True)
    nearest = _nearest_of(train, len(opened.class_names))
    answers = Answers(to_numpy(nearest(asked)), to_numpy(labels))
    scores = {"top1": float(answers.right.mean()), "opened": opened.opened["test"], "probe": str(nearest)}
    folder.write_answers(scores, answers, layout.NEIGHBOURS)


def probe_few(
    folder: RunFolder, weights: str | Path, data: DataConfig, *, device: str = "auto"
) -> tuple[Classifier, dict[str, Evaluation]]:
    """The same of any weights, from the few images of `data.subset`: their probe's strength is chosen on validation, test is opened."""
    body = load(weights, quiet=True).to(pick_device(device))
    opened = open_data(data, preprocess=Preprocess.of(body))
    opened.require_single_label("a probe's accuracy")
    train, judge = (read_features(body, _loader(opened, split, device), quiet=True) for split in (opened.train, opened.validation))
    head = fit_linear(train, judge, len(opened.class_names))
    return _judged(folder, body, head, opened, len(train[1]), True, device)


def _judged(
    folder: RunFolder, body: Classifier, head: Linear, opened: Data, images: int, test: bool, device: str
) -> tuple[Classifier, dict[str, Evaluation]]:
    model = as_model(body, head, opened, images).to(pick_device(device))
    judged: dict[str, Any] = {}
    if len(opened.validation):
        judged["validation"] = evaluate_loader(model, _loader(opened, opened.validation, device))
    if test:
        judged["test"] = scored = evaluate_loader(model, _loader(opened, opened.test(), device))
        scores = {**scored.to_dict(), "opened": opened.opened["test"], "probe": str(head)}
        folder.write_answers(scores, scored.answers(opened.test()))
        written = folder.environment.get("data", {})
        folder.write_environment({"data": {**written, "opened": dict(opened.opened), "copies": dict(opened.copies)}})
    return model, judged


def _loader(opened: Data, split: Split, device: str) -> Loader:
    return evaluation_loader(split, opened.preprocess, pick_device(device), _BATCH)


def linear_of(train: Labelled, classes: int, seed: int) -> Linear:
    """The linear probe of all these. Its strength is chosen among them, on as many held-out tenths as make enough pictures to choose by."""
    features, labels = train
    order = torch.from_numpy(generator(seed, "probe").permutation(len(labels))).to(labels.device)
    parts = order.chunk(_CHOOSING)
    parts, size = parts[: math.ceil(_ENOUGH / len(parts[0]))], len(parts[0])

    def attempt(strength: float) -> tuple[float, float]:
        """The same strength for all pictures, and how many of those held out are right."""
        right = 0.0
        for held in parts:
            others = torch.ones(len(labels), dtype=torch.bool, device=labels.device)
            others[held] = False
            probe = fit_linear((features[others], labels[others]), None, classes, strength)
            right += float(probe(features[held]).eq(labels[held]).sum())
        return strength * (len(labels) - size) / len(labels), right

    return fit_linear(train, None, classes, settle(attempt, TRIED_ON / (len(labels) - size)))


def _nearest_of(train: Labelled, classes: int) -> Neighbours:
    """The nearest neighbours among all these, as many as the field asks."""
    return fit_neighbours(train, None, classes, (min(_NEIGHBOURS, len(train[1])),))


def labelled(folder: RunFolder, model: Classifier) -> Data:
    """The images of a pre-training, split as it split them, with their labels."""
    config = folder.settled.data
    source = open_source(config)
    if source.class_names == UNLABELLED:
        raise DataError(f"{config.name} has no labels to probe with", "sort some of the pictures into class folders, then vitral probe")
    data = open_data(dataclasses.replace(config, subset=None), preprocess=Preprocess.of(model), source=source, seen=folder.seen)
    before = folder.environment.get("data", {}).get("validation")
    if before is not None and before != len(data.validation):
        raise DataError(
            f"{config.name} has {len(data.validation):,} labelled pictures for validation, the run had {before:,}",
            "put every picture into a class folder, or probe with vitral probe",
        )
    return data
