"""The tests of an audit. Each is a function of the subjects and their maps and returns what it measured.

R rows (methods and references), P explained images. A value is NaN where a row was spared the image or it could not be measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from vitral.base.errors import ConfigError, UsageError
from vitral.base.numbers import to_numpy
from vitral.base.text import percent
from vitral.look.faithfulness import (
    auroc_inside,
    deletion_insertion,
    gain,
    on_grid,
    order_of,
    rank_correlation,
    removals_of,
    salience_order,
    share_inside,
    with_permuted_weights,
)
from vitral.look.method import Method, call, watch_for
from vitral.look.occlusion import grid_of
from vitral.look.rerun import score_unit
from vitral.look.synthetic import mosaic, quadrant, with_triggers
from vitral.model.classifier import Classifier, evaluating
from vitral.model.head import probabilities
from vitral.study.audit.pictures import as_pixels, changed, fours, sure_ones
from vitral.train.probe import Linear, fit_linear, last_layer

LEVELS = ("head", "top third", "two thirds", "everything")
"""How much of the model is permuted."""
_TRIGGER_ACCURACY = 0.95
"""How often the planted trigger must decide the class before a map is judged by it."""
_SMALLEST_MOSAIC = 32
"""Pixels: a quarter of a smaller image shows nothing."""
_SLOW_SHARE = 3
"""Methods of many passes cost nearly all of an audit's time: except for removal, they explain one image of so many in each test."""
_BATCH = 16


@dataclass(frozen=True)
class Example:
    """One image of a test: what the model was shown, and every row's map of it."""

    test: str
    image: np.ndarray
    """(H, W, 3) uint8"""
    maps: dict[str, np.ndarray]
    caption: str
    inside: np.ndarray | None = None


@dataclass(frozen=True)
class Measured:
    """What one test returns."""

    values: dict[str, np.ndarray] = field(default_factory=dict)
    """Test → (R, n): a number per row, and per image or set of four."""
    notes: tuple[str, ...] = ()
    example: Example | None = None
    levels: dict[str, list[float]] = field(default_factory=dict)
    """Row → rank correlation with its maps of ever more permuted models."""
    curves: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)
    """Way of removing → row → its mean deletion and insertion curve."""


@dataclass(frozen=True)
class Subjects:
    """The model, the rows and the images: all that a test reads."""

    model: Classifier
    rows: tuple[Method, ...]
    pool: torch.Tensor
    """(N, C, H, W): the explained images and those that heads are fitted to."""
    confidence: np.ndarray
    """(N,)"""
    answers: np.ndarray
    """(N,) the model's class of each."""
    runners_up: np.ndarray
    """(N,)"""
    chosen: np.ndarray
    """(P,) indices into the pool: the explained images."""
    flips: bool
    """A mirrored image means the same."""
    seed: int
    advance: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, model: Classifier, rows: Sequence[Method], images: torch.Tensor, count: int, *, flips: bool, seed: int) -> Subjects:
        """Up to `count` of the images are explained, those with confident answers first."""
        logits = logits_of(model, images)
        shares = logits.abs() if score_unit(model) == "output" else probabilities(logits, model.origin.multi_label)
        confidence, answers = to_numpy(shares.max(dim=1).values), to_numpy(shares.argmax(dim=1))
        runners_up = to_numpy(logits.topk(min(2, logits.shape[1]), dim=1).indices[:, -1])
        chosen = sure_ones(confidence, answers, count)
        return cls(model, tuple(rows), images, confidence, answers, runners_up, chosen, flips, seed)

    @property
    def one_output(self) -> bool:
        return score_unit(self.model) == "output"

    @property
    def grid(self) -> tuple[int, int]:
        return grid_of(self.model)

    @property
    def slow(self) -> list[int]:
        """Rows of many passes."""
        return [number for number, row in enumerate(self.rows) if row.multi_pass]

    def each(self, items: Sequence[Any] | np.ndarray) -> Iterator[tuple[int, Any]]:
        """Positions and items of a test; the progress bar advances after each."""
        for position, item in enumerate(items):
            yield position, item
            self.advance()

    def spared(self, position: int) -> Sequence[int]:
        """Rows that skip the image at this position of a test: methods of many passes explain the first third, at least two."""
        return self.slow if position >= max(2, math.ceil(len(self.chosen) / _SLOW_SHARE)) else ()

    def explain(self, model: Classifier, image: torch.Tensor, target: int, spared: Sequence[int] = ()) -> np.ndarray:
        """(R, h, w) of one image, from one watched pass; NaN for the rows of `spared`."""
        tape = watch_for(model, image[None], [row for number, row in enumerate(self.rows) if number not in spared])
        out = np.full((len(self.rows), *self.grid), np.nan)
        for number, row in enumerate(self.rows):
            if number not in spared:
                made = call(row, tape, target=target) if row.explains else row.function(tape)
                out[number] = np.nan_to_num(on_grid(made.grid, self.grid))
        return out

    def maps(self) -> np.ndarray:
        """(P, R, h, w) of the explained images."""
        return np.stack([self.explain(self.model, self.pool[index], int(self.answers[index])) for _, index in self.each(self.chosen)])

    def class_name(self, index: int) -> str:
        """Name of the model's class of an image of the pool."""
        return self.model.origin.class_name(int(self.answers[index]))

    def example(self, test: str, image: torch.Tensor, maps: np.ndarray, caption: str, inside: np.ndarray | None = None) -> Example:
        named = {row.name: values for row, values in zip(self.rows, maps, strict=True) if not np.isnan(values).any()}
        return Example(test, as_pixels(self.model, image), named, caption, inside)


def removal(subjects: Subjects, maps: np.ndarray) -> Measured:
    """Patches are removed in the order of each map: how fast does the score fall and rise?"""
    model, chosen, rows = subjects.model, subjects.chosen, subjects.rows
    ways = removals_of(model)
    notes = () if len(ways) == 4 else ("tokens cannot be dropped one by one from this model: three ways of removing",)
    gains = np.zeros((len(ways), len(rows), len(chosen)))
    salience = np.zeros((len(rows), len(chosen)))
    drawn = np.zeros((len(ways), len(rows), 2, 7))
    for position, index in subjects.each(chosen):
        image, target = subjects.pool[index], int(subjects.answers[index])
        other = subjects.pool[int(chosen[position - 1])] if len(chosen) > 1 else image.flip(-1)
        orders = np.stack([order_of(values) for values in maps[position]])
        for way, name in enumerate(ways):
            both = deletion_insertion(model, image, other, target, orders, subjects.grid, name)
            gains[way, :, position] = gain(both, subjects.one_output)
            drawn[way] += both / len(chosen)
        salience[:, position] = salience_order(model, image, target, maps[position])
    values = {f"removal: {name}": gains[way] for way, name in enumerate(ways)}
    values |= {"removal": gains.mean(axis=0), "salience order": salience}
    mean_curves = {
        name: {row.name: drawn[way, number].round(4).tolist() for number, row in enumerate(rows)} for way, name in enumerate(ways)
    }
    first = chosen[0]
    sure = "" if subjects.one_output else f", {percent(float(subjects.confidence[first]))} sure"
    example = subjects.example("removal", subjects.pool[first], maps[0], f"{subjects.class_name(first)}{sure}")
    return Measured(values, notes, example, curves=mean_curves)


def planted(subjects: Subjects, _: np.ndarray) -> Measured:
    """A head is fitted to tell images with a trigger from those without: then only the trigger decides, and a map must show it."""
    model, seed = subjects.model, subjects.seed
    others = np.setdiff1d(np.arange(len(subjects.pool)), subjects.chosen)
    fitted = subjects.pool[torch.from_numpy(others)] if len(others) >= 8 else subjects.pool
    head, accuracy, size = model, 0.0, 0
    while not accuracy >= _TRIGGER_ACCURACY and size < min(3, min(subjects.grid) // 2):
        size += 1
        try:
            head, accuracy = head_for_trigger(model, fitted, size, subjects.grid, seed)
        except (ConfigError, UsageError) as error:
            return Measured(notes=(f"no planted patch: {error.message}",))
    if math.isnan(accuracy):
        return Measured(notes=("no planted patch: too few pictures to fit a head to",))
    if accuracy < _TRIGGER_ACCURACY:
        return Measured(notes=(f"no planted patch: the head tells it from none in {percent(accuracy)} of the pictures only",))
    bare = subjects.pool[torch.from_numpy(subjects.chosen)]
    made = with_triggers(model, bare, size, subjects.grid, seed + 1)
    decides = (logits_of(head, made.images).argmax(dim=1) == 1) & (logits_of(head, bare).argmax(dim=1) == 0)
    values = np.full((len(subjects.rows), len(bare)), np.nan)
    example = None
    for position, index in subjects.each(np.flatnonzero(to_numpy(decides))):
        maps = subjects.explain(head, made.images[index], 1, subjects.spared(position))
        values[:, index] = _of_each(partial(auroc_inside, inside=made.inside[index]), maps)
        if not position:
            caption = f"a chequered square of {size} × {size} patches decides the class ({percent(accuracy)} right)"
            example = subjects.example("planted patch", made.images[index], maps, caption, made.inside[index])
    if example is None:
        return Measured(notes=("no planted patch: it decides none of the pictures that were kept",))
    return Measured({"planted patch": values}, example=example)


def _four_in_one(subjects: Subjects, _: np.ndarray) -> Measured:
    """Four images of four classes in one, explained for two of them; of small images the two likeliest classes of one."""
    model, answers = subjects.model, subjects.answers
    if model.config.classes == 1:
        return Measured(notes=("classes cannot be told apart: this model has one output",))
    sets = fours(subjects.confidence, answers, len(subjects.chosen), subjects.seed)
    if min(model.config.image_size) < _SMALLEST_MOSAIC or len(sets) < 2:
        note = "no four pictures in one: these are too small or of too few classes; classes are told apart on single pictures"
        differences = []
        for position, index in subjects.each(subjects.chosen):
            labels = int(answers[index]), int(subjects.runners_up[index])
            both = [subjects.explain(model, subjects.pool[index], label, subjects.spared(position)) for label in labels]
            differences.append(_of_each(_unlikeness, *both))
        return Measured({"classes": np.array(differences).T}, (note,))
    shares, differences, example = [], [], None
    inside = [quadrant(corner, subjects.grid) for corner in (0, 3)]
    for position, members in subjects.each(sets):
        image = mosaic(subjects.pool[torch.from_numpy(members)])
        both = [subjects.explain(model, image, int(answers[members[corner]]), subjects.spared(position)) for corner in (0, 3)]
        shares.append(np.mean([_of_each(partial(share_inside, inside=part), one) for part, one in zip(inside, both, strict=True)], axis=0))
        differences.append(_of_each(_unlikeness, *both))
        if not position:
            caption = f"explained: {subjects.class_name(members[0])}, top left"
            example = subjects.example("four in one", image, both[0], caption, inside[0])
    return Measured({"four in one": np.array(shares).T, "classes": np.array(differences).T}, example=example)


def _permuted_weights(subjects: Subjects, maps: np.ndarray) -> Measured:
    """Weights are permuted from the top downwards, anew per image: a map that does not change explains nothing that was trained."""
    model = subjects.model
    depth = len(model.map_names())
    depths = {"head": 0, "top third": math.ceil(depth / 3), "two thirds": math.ceil(2 * depth / 3), "everything": None}
    values = np.full((len(LEVELS), len(subjects.rows), len(subjects.chosen)), np.nan)
    example, other_maps = None, maps
    for position, index in subjects.each(subjects.chosen):
        for number, level in enumerate(LEVELS):
            spared = subjects.spared(position) if level == "everything" else subjects.slow
            other = with_permuted_weights(model, depths[level], subjects.seed + position)
            other_maps = subjects.explain(other, subjects.pool[index], int(subjects.answers[index]), spared)
            values[number, :, position] = _of_each(rank_correlation, other_maps, maps[position])
        if not position:
            caption = "maps of a model whose weights were shuffled"
            example = subjects.example("permuted weights", subjects.pool[index], other_maps, caption)
    levels = {}
    for row, each in zip(subjects.rows, values.transpose(1, 0, 2), strict=True):
        measured = [level[~np.isnan(level)] for level in each]
        levels[row.name] = [float(level.mean()) if len(level) else math.nan for level in measured]
    return Measured({"permuted weights": values[-1]}, example=example, levels=levels)


def _permuted_labels(subjects: Subjects, _: np.ndarray) -> Measured:
    """The head is fitted once to the model's answers and once to the same answers shuffled: do maps follow what was trained?"""
    model = subjects.model
    classes, numbers = np.unique(subjects.answers, return_inverse=True)
    if len(classes) < 2:
        why = "this model has one output" if model.config.classes == 1 else "the model gives all these pictures one class"
        return Measured(notes=(f"no permuted labels: {why}",))
    shuffled = np.random.default_rng(subjects.seed).permutation(numbers)
    try:
        heads = [head_for_labels(model, subjects.pool, labels, len(classes), subjects.seed) for labels in (numbers, shuffled)]
    except (ConfigError, UsageError) as error:
        return Measured(notes=(f"no permuted labels: {error.message}",))
    values = []
    for position, index in subjects.each(subjects.chosen):
        pairs = zip(heads, (numbers, shuffled), strict=True)
        both = [subjects.explain(head, subjects.pool[index], int(label[index]), subjects.spared(position)) for head, label in pairs]
        values.append(_of_each(rank_correlation, *both))
    return Measured({"permuted labels": np.array(values).T})


def _small_changes(subjects: Subjects, maps: np.ndarray) -> Measured:
    """Noise, a mirror, a crop: people see the same image, so the map should be the same."""
    kinds = ("noise", "crop", "mirror") if subjects.flips else ("noise", "crop")
    draw = torch.Generator().manual_seed(subjects.seed)
    values = np.full((len(kinds), len(subjects.rows), len(subjects.chosen)), np.nan)
    example = None
    for position, index in subjects.each(subjects.chosen):
        for number, kind in enumerate(kinds):
            image, back = changed(subjects.pool[index], kind, subjects.grid, draw)
            if int(logits_of(subjects.model, image[None]).argmax()) != int(subjects.answers[index]):
                continue  # to the model it is another image
            spared = subjects.spared(position) if number == position % len(kinds) else subjects.slow
            made = subjects.explain(subjects.model, image, int(subjects.answers[index]), spared)
            values[number, :, position] = _of_each(rank_correlation, *back(made, maps[position]))
            if position == 0 and kind == "noise":
                example = subjects.example("small changes", image, made, "the same picture with noise")
    measured = ~np.isnan(values)
    if not measured.any():
        return Measured(notes=("no small changes: each of them changes the answer",), example=example)
    sums = np.where(measured, values, 0.0).sum(axis=0)  # an image counts once, whatever was done to it
    means = np.where(measured.any(axis=0), sums / measured.sum(axis=0).clip(1), np.nan)
    return Measured({"small changes": means}, example=example)


def inside_masks(subjects: Subjects, maps: np.ndarray, masks: dict[int, np.ndarray]) -> Measured:
    """`masks`: position → the patches (h, w) inside the mask of that explained image."""
    values = np.full((len(subjects.rows), len(subjects.chosen)), np.nan)
    for position, patches in masks.items():
        values[:, position] = _of_each(partial(auroc_inside, inside=patches), maps[position])
    return Measured({"masks": values})


TESTS: dict[str, Callable[[Subjects, np.ndarray], Measured]] = {
    "removal": removal,
    "a planted patch": planted,
    "four pictures in one": _four_in_one,
    "permuted weights": _permuted_weights,
    "permuted labels": _permuted_labels,
    "small changes": _small_changes,
}
"""Name in the progress bar → the test, in their order."""


def _of_each(measure: Callable[..., float], *maps: np.ndarray) -> np.ndarray:
    """(R,) a measure of each row's maps (R, h, w); NaN for a row that made none."""
    return np.array([measure(*row) if not np.isnan(row).any() else np.nan for row in zip(*maps, strict=True)])


def _unlikeness(first: np.ndarray, second: np.ndarray) -> float:
    return 1 - rank_correlation(first, second)


def logits_of(model: Classifier, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), evaluating(model):
        return torch.cat([model(part).float() for part in images.split(_BATCH)])


def head_for_trigger(model: Classifier, bare: torch.Tensor, size: int, grid: tuple[int, int], seed: int) -> tuple[Classifier, float]:
    """A model of two classes, without and with the trigger, and its accuracy on images that its head was not fitted to."""
    triggered = [with_triggers(model, bare, size, grid, seed + 100 + turn).images for turn in range(2)]
    features = torch.cat([_pooled(model, part) for part in (bare, *triggered)])
    labels = torch.cat([torch.zeros(len(bare)), torch.ones(2 * len(bare))]).long().to(features.device)
    validation = torch.arange(len(bare)).repeat(3) % 4 == 3  # an image trains the head with and without its trigger, or not at all
    probe = fit_linear((features[~validation], labels[~validation]), None, 2)
    accuracy = float((probe(features[validation]) == labels[validation]).float().mean())
    return _with_head(model, probe, 2, seed), accuracy


def head_for_labels(model: Classifier, images: torch.Tensor, labels: np.ndarray, classes: int, seed: int) -> Classifier:
    features = _pooled(model, images)
    return _with_head(model, fit_linear((features, torch.from_numpy(labels).to(features.device)), None, classes), classes, seed)


def _pooled(model: Classifier, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), evaluating(model):
        return torch.cat([model.pooled(part).float() for part in images.split(_BATCH)])


def _with_head(model: Classifier, probe: Linear, classes: int, seed: int) -> Classifier:
    made = model.with_head(classes, seed)
    layer = last_layer(made)
    if layer.weight.shape != probe.weight.shape:
        raise UsageError("the head is more than one linear layer", "this test is left out")
    probe.write_into(layer)
    return made.eval()
