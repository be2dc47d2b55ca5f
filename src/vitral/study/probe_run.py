"""What a model that learnt without labels is worth: a linear probe and nearest neighbours on the validation pictures of its own run.

Labels are read here for the first time, when the run is over. Settings are chosen on a tenth of the training pictures; the test split
stays closed, unless a study asks for its final answers (`probe_in_place`).
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import torch

from vitral.base import layout
from vitral.base.device import pick_device
from vitral.base.errors import DataError
from vitral.base.numbers import to_numpy
from vitral.base.text import percent, table
from vitral.config import DataConfig
from vitral.data.images.preprocess import Preprocess
from vitral.data.keys import generator
from vitral.data.loader import Loader
from vitral.data.sources.protocol import UNLABELLED
from vitral.data.splits.open import Data, open_data, open_source
from vitral.data.splits.split import Split
from vitral.model.classifier import Classifier
from vitral.run.answers import Answers
from vitral.run.folder import RunFolder
from vitral.study.fight.folder import Result
from vitral.study.fight.statistics import images_interval
from vitral.study.probe import as_model
from vitral.train.evaluate import evaluate_loader, evaluation_loader
from vitral.train.probe import TRIED_ON, Labelled, Linear, Neighbours, fit_linear, fit_neighbours, read_features, settle
from vitral.train.scores import Evaluation
from vitral.weights.load import load

BATCH = 128
NEIGHBOURS = 20
CHOOSING = 10
"""One in so many training pictures is held out to choose the strength of the linear probe,"""
ENOUGH = 1000
"""and others in turn until so many have been: 129 of digits once chose a strength that cost three points."""


def probe_run(path: str | Path, *, device: str = "auto", quiet: bool = False) -> Result:
    """Probe the model of a finished pre-training on its own data, and write what came out into its folder (probe.json)."""
    folder = RunFolder.open(path)
    model = folder.model().to(pick_device(device))
    opened = labelled(folder, model)
    place = next(model.parameters()).device
    loaders = [evaluation_loader(split, opened.preprocess, place, BATCH) for split in (opened.train, opened.validation)]
    (features, labels), (judged, answers) = (read_features(model, loader, quiet=quiet) for loader in loaders)
    classes = len(opened.class_names)
    options = {
        "linear": linear_of((features, labels), classes, folder.settled.data.split_seed),
        "neighbours": nearest_of((features, labels), classes),
    }
    found: dict[str, Any] = {"data": opened.name, "split": "validation", "pictures": len(answers), "width": features.shape[1]}
    lines = []
    for name, option in options.items():
        right = to_numpy(option(judged).eq(answers))
        interval = images_interval(right)
        found[name] = {"accuracy": float(right.mean()), "interval": [interval.low, interval.high], "settings": str(option)}
        lines.append([name, percent(right.mean()), f"{percent(interval.low)} – {percent(interval.high)}", str(option)])
    folder.write_probe(found)
    return Result(table(lines, ["probe", "validation accuracy", "95 % over pictures", "with"], "lrll"), found)


def probe_in_place(
    folder: RunFolder, *, test: bool, neighbours: bool = False, device: str = "auto"
) -> tuple[Classifier, dict[str, Evaluation]]:
    """The finished run's model with a linear probe for its head, and what that is worth on validation, where there is any. With `test`,
    on the test split too: it is opened here, once, and the answers go into the folder as those of a training do. With `neighbours`,
    what the nearest neighbours answer on the same test pictures goes beside them (neighbours.npz)."""
    body = folder.model().to(pick_device(device))
    opened = labelled(folder, body)
    opened.require_single_label("a probe's accuracy")

    learnt = read_features(body, _loader(opened, opened.train, device), quiet=True)
    head = linear_of(learnt, len(opened.class_names), folder.settled.data.split_seed)
    judged = _judged(folder, body, head, opened, len(learnt[1]), test, device)
    if test and neighbours:
        _write_neighbours(folder, body, learnt, opened, device)
    return judged


def _write_neighbours(folder: RunFolder, body: Classifier, learnt: Labelled, opened: Data, device: str) -> None:
    asked, labels = read_features(body, _loader(opened, opened.test(), device), quiet=True)
    nearest = nearest_of(learnt, len(opened.class_names))
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
    learnt, judge = (read_features(body, _loader(opened, split, device), quiet=True) for split in (opened.train, opened.validation))
    head = fit_linear(learnt, judge, len(opened.class_names))
    return _judged(folder, body, head, opened, len(learnt[1]), True, device)


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
        known = folder.environment.get("data", {})
        folder.write_environment({"data": {**known, "opened": dict(opened.opened), "copies": dict(opened.copies)}})
    return model, judged


def _loader(opened: Data, split: Split, device: str) -> Loader:
    return evaluation_loader(split, opened.preprocess, pick_device(device), BATCH)


def linear_of(learnt: Labelled, classes: int, seed: int) -> Linear:
    """The linear probe of all these. Its strength is chosen among them, on as many held-out tenths as make enough pictures to choose by."""
    features, labels = learnt
    order = torch.from_numpy(generator(seed, "probe").permutation(len(labels))).to(labels.device)
    parts = order.chunk(CHOOSING)
    parts, size = parts[: math.ceil(ENOUGH / len(parts[0]))], len(parts[0])

    def attempt(strength: float) -> tuple[float, float]:
        """The same strength for all pictures, and how many of those held out are right."""
        right = 0.0
        for held in parts:
            kept = torch.ones(len(labels), dtype=torch.bool, device=labels.device)
            kept[held] = False
            probe = fit_linear((features[kept], labels[kept]), None, classes, strength)
            right += float(probe(features[held]).eq(labels[held]).sum())
        return strength * (len(labels) - size) / len(labels), right

    return fit_linear(learnt, None, classes, settle(attempt, TRIED_ON / (len(labels) - size)))


def nearest_of(learnt: Labelled, classes: int) -> Neighbours:
    """The nearest neighbours among all these, as many as the field asks."""
    return fit_neighbours(learnt, None, classes, (min(NEIGHBOURS, len(learnt[1])),))


def labelled(folder: RunFolder, model: Classifier) -> Data:
    """The pictures of a run that learnt without labels, split as it split them, with their labels."""
    config = folder.settled.data
    source = open_source(config)
    if source.class_names == UNLABELLED:
        raise DataError(f"{config.name} has no labels to probe with", "sort some of the pictures into class folders, then vitral probe")
    data = open_data(dataclasses.replace(config, subset=None), preprocess=Preprocess.of(model), source=source, seen=folder.learnt)
    before = folder.environment.get("data", {}).get("validation")
    if before is not None and before != len(data.validation):
        raise DataError(
            f"{config.name} has {len(data.validation):,} labelled pictures for validation, the run had {before:,}",
            "put every picture into a class folder, or probe with vitral probe",
        )
    return data
