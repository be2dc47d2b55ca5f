"""How good are frozen features? A linear probe and nearest neighbours on k images a class, with intervals over the draws.

Strength and number of neighbours are chosen on validation. The test images are opened once, after all choices are made.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vitral.base.device import pick_device
from vitral.base.errors import UsageError
from vitral.base.layout import WEIGHTS
from vitral.base.numbers import to_numpy
from vitral.base.origin import fact
from vitral.base.progress import progress
from vitral.base.text import percent, table
from vitral.config import DataConfig, to_dict
from vitral.config.formats import Precision
from vitral.data.images.preprocess import Preprocess
from vitral.data.loader import Loader
from vitral.data.splits.open import Data, open_data
from vitral.data.splits.split import Split
from vitral.model.classifier import Classifier
from vitral.run.folder import seen_by
from vitral.study.fight.folder import Result
from vitral.study.fight.statistics import accuracy_interval, images_interval
from vitral.train.judged import learnt_from
from vitral.train.probe import Labelled, Linear, Neighbours, fit_linear, fit_neighbours, last_layer, read_features
from vitral.weights.checkpoint import save as write_model
from vitral.weights.load import load

SHOTS = (1, 5, 10, None)
DRAWS = 5


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
    data: str,
    *,
    shots: Sequence[int | None] = SHOTS,
    draws: int = DRAWS,
    blocks: int = 1,
    root: str | None = None,
    validation: float = 0.1,
    split_seed: int = 0,
    on_bad_image: Literal["fail", "skip"] = "fail",
    batch_size: int = 128,
    precision: Precision = "auto",
    device: str = "auto",
    quiet: bool = False,
    name: str = "",
    save: str | Path | None = None,
) -> Result:
    """Linear probe and nearest neighbours on a model's frozen features: `vitral probe` as a call. It leaves no folder.

    - model: a model, or anything that `vitral.load` takes.
    - data: a name from `vitral data list` or "folder:PATH"; `validation` is the share of its training images to choose on.
    - shots: images a class to learn from; None: all of them. Each number is drawn `draws` times: the interval is over them.
    - blocks: of how many of the last blocks the features are read, side by side; 1: what the head reads.
    - save: a folder for the probe as a model: the frozen body with the head of the last of `shots`.

        result = vitral.study.probe("runs/digits", "digits", shots=[1, 5, None])
        result.rows[0]["linear"]["mean"]
    """
    if save is not None and (Path(save) / WEIGHTS).exists():
        raise UsageError(f"{save} already holds a model", "choose another folder to save the probe in")
    network = model if isinstance(model, Classifier) else load(model)
    config = DataConfig(name=data, root=root, validation=validation, split_seed=split_seed, on_bad_image=on_bad_image)
    learnt = seen_by(network) if learnt_from(network, data) else None
    opened = open_data(config, preprocess=Preprocess.of(network), seen=learnt if learnt and learnt.splits else None)
    name = name or (f"{network.config.family} model" if isinstance(model, Classifier) else str(model))
    return run_probe(
        network,
        opened,
        name,
        shots=shots,
        draws=draws,
        blocks=blocks,
        device=pick_device(device),
        batch_size=batch_size,
        precision=precision,
        quiet=quiet,
        save=save,
    )


def run_probe(
    model: Classifier,
    data: Data,
    name: str = "model",
    *,
    shots: Sequence[int | None] = SHOTS,
    draws: int = DRAWS,
    blocks: int = 1,
    device: torch.device | str = "cpu",
    batch_size: int = 128,
    precision: Precision = "auto",
    quiet: bool = False,
    save: str | Path | None = None,
) -> Result:
    _check(data, shots, draws)
    if save is not None and model.config.distillation_token:
        raise UsageError("a model with a distillation token has two heads, a probe is one", "leave --save out")
    if save is not None and blocks != 1:
        raise UsageError(f"a head reads one block, this probe reads {blocks}", "leave --save or --blocks out")
    classes = len(data.class_names)

    def read(split: Split) -> Labelled:
        """What the head would read, of as many blocks as are asked for."""
        loader = Loader(split.with_preprocess(Preprocess.of(model)), batch_size=min(batch_size, len(split)), device=device)
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
