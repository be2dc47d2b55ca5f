"""Which explanation of this model can be trusted: every method against planted truth, removal, permuted weights, small changes.

No labels are needed: a map explains what the model says, right or wrong. R rows (methods and references), P pictures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitral.base.errors import ConfigError, DataError, UsageError
from vitral.base.numbers import to_numpy
from vitral.base.progress import progress, watched
from vitral.base.text import percent
from vitral.look import references
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
from vitral.look.method import Method, call, choose, watch_for
from vitral.look.occlusion import grid_of
from vitral.look.rerun import score_unit
from vitral.look.synthetic import mosaic, quadrant, with_triggers
from vitral.model.classifier import Classifier
from vitral.model.head import probabilities
from vitral.study.audit.heads import head_for_labels, head_for_trigger, logits_of
from vitral.study.audit.pictures import SURE, as_pixels, changed, fours, open_pictures, read_masks, sure_ones
from vitral.study.audit.verdict import TESTS, Row, paired, summary, verdict_of

PICTURES = 12
POOL = 40
"""Pictures beside those that are explained: what the head learns a planted patch from, and where sure answers are chosen."""
PLANTED_SURE = 0.95
"""How often the planted trigger must decide the class before a map is held against it."""
SMALLEST_MOSAIC = 32
"""Pixels: of smaller pictures a quarter shows nothing."""
SLOW_SHARE = 3
"""Methods of many passes are nearly all of an audit's cost: beside removal, they explain one picture of so many in each test."""
REFERENCES = (
    Method(references.random, "noise"),
    Method(references.edges, "Sobel's edges"),
    Method(references.centre, "the nearer to the middle the more"),
)
LEVELS = ("head", "top third", "two thirds", "everything")


@dataclass(frozen=True)
class Example:
    """One picture of a test: what was looked at, and every row's map of it."""

    test: str
    image: np.ndarray
    """(H, W, 3) uint8"""
    maps: dict[str, np.ndarray]
    caption: str
    inside: np.ndarray | None = None


@dataclass(frozen=True)
class Audit:
    rows: tuple[Row, ...]
    """The methods, then the references."""
    pictures: int
    notes: tuple[str, ...]
    levels: dict[str, list[float]] = field(default_factory=dict)
    """Rank correlation with the maps of ever more permuted models."""
    curves: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)
    """For each way of removing and each row: the mean deletion and insertion curve."""
    examples: tuple[Example, ...] = ()
    values: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    """For each test and row: a number for each picture, or for each set of four; NaN where it was spared or could not be measured."""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "pictures": self.pictures,
            "rows": [row.to_dict() for row in self.rows],
            "tests": TESTS,
            "notes": list(self.notes),
            "levels": self.levels,
            "curves": self.curves,
            "values": {test: {name: each.round(4).tolist() for name, each in rows.items()} for test, rows in self.values.items()},
            "seconds": self.seconds,
        }


def audit(
    model: Classifier,
    data: Any,
    methods: Sequence[str] = (),
    own: Sequence[Method] = (),
    *,
    split: str | None = None,
    root: str | None = None,
    pictures: int = PICTURES,
    masks: str | Path | None = None,
    seed: int = 0,
    quiet: bool = False,
) -> Audit:
    """Every method (default: the usual ones that suit the model) and three references through every test that the model allows.

    data: a data set's name, a folder of pictures, or pictures. own: methods of one's own beside them. masks: a folder with a mask
    (white: inside) for each picture, by its name.
    """
    if not model.config.classes:
        raise UsageError("this model has no head, so there is no class to explain", "give it one: vitral probe or vitral train finetune")
    if pictures < 2:
        raise UsageError(f"an audit of {pictures} picture(s) has no intervals", f"use at least 2, better {PICTURES}")
    chosen = [method for method in choose(model, methods) if method.supports(model)] if methods or not own else []
    rows = [*chosen, *own]
    if not rows:
        raise UsageError("none of these methods suits this model", "choose others with --methods")
    names = [row.name for row in (*rows, *REFERENCES)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two methods are called {twice}", "give yours another name")
    if min(grid_of(model)) < 2:
        raise UsageError("a map of one row or column cannot be audited", "use a model with at least 2 × 2 patches")
    model = model.eval()
    judge = _Judge(model, [*rows, *REFERENCES], data, split, root, pictures, seed)
    steps: list[tuple[str, Callable[[], None]]] = [
        ("maps", judge.draw_maps),
        ("removal", judge.removal),
        ("a planted patch", judge.planted),
        ("four pictures in one", judge.four),
        ("permuted weights", judge.weights),
        ("permuted labels", judge.labels),
        ("small changes", judge.changes),
    ]
    if masks is not None:  # read before anything is spent
        inside = read_masks(model, Path(masks), [judge.sources[index] for index in judge.chosen], judge.grid)
        steps.append(("masks", lambda: judge.masks(inside)))
    with progress("Auditing", len(steps) * len(judge.chosen), quiet) as bar, watched(lambda _: None):
        judge.advance = bar.advance
        for number, (name, step) in enumerate(steps, 1):
            bar.description = f"Auditing: {name}"
            step()
            bar.advance(number * len(judge.chosen) - bar.done)  # where a test had fewer pictures, or was left out
        seconds = bar.seconds
    return dataclasses.replace(judge.conclude(), seconds=seconds)


class _Judge:
    """The pictures, the rows, and what each test found."""

    def __init__(
        self, model: Classifier, rows: Sequence[Method], data: Any, split: str | None, root: str | None, count: int, seed: int
    ) -> None:
        self.model, self.rows, self.seed = model, list(rows), seed
        self.grid = grid_of(model)
        self.place = next(model.parameters())
        opened, self.flips = open_pictures(model, data, split, root, POOL + count, seed)
        if len(opened) < 2:
            raise DataError(f"{len(opened)} of the pictures can be opened", f"an audit needs 2 or more, better {PICTURES}")
        self.sources = [picture.source for picture in opened]
        self.pool = torch.stack([picture.tensor for picture in opened]).to(self.place.device, self.place.dtype)
        logits = logits_of(model, self.pool)
        self.one_output = score_unit(model) == "output"
        shares = logits.abs() if self.one_output else probabilities(logits, model.origin.multi_label)
        self.confidence, self.answers = to_numpy(shares.max(dim=1).values), to_numpy(shares.argmax(dim=1))
        self.runner_up = to_numpy(logits.topk(min(2, logits.shape[1]), dim=1).indices[:, -1])
        self.chosen = sure_ones(self.confidence, self.answers, count)
        self.advance: Callable[[], None] = lambda: None
        self.slow = [number for number, row in enumerate(self.rows) if row.multi_pass]
        self.values: dict[str, np.ndarray] = {}
        self.notes: list[str] = []
        self.examples: list[Example] = []
        self.levels: dict[str, list[float]] = {}
        self.mean_curves: dict[str, dict[str, list[list[float]]]] = {}
        self.maps = np.zeros((0,))
        unsure = int((self.confidence[self.chosen] < SURE).sum())
        if unsure and not self.one_output:
            self.notes.append(f"the model is less than half sure of {unsure} of the {len(self.chosen)} pictures")

    # ---- the tests -------------------------------------------------------------------------------------------------------------

    def draw_maps(self) -> None:
        made = [self._maps(self.model, self.pool[index], int(self.answers[index])) for _, index in self._each(self.chosen)]
        self.maps = np.stack(made)  # (P, R, h, w)

    def removal(self) -> None:
        ways = removals_of(self.model)
        if len(ways) < 4:
            self.notes.append("tokens cannot be dropped one by one from this model: three ways of removing")
        gains = np.zeros((len(ways), len(self.rows), len(self.chosen)))
        salience = np.zeros((len(self.rows), len(self.chosen)))
        drawn = np.zeros((len(ways), len(self.rows), 2, 7))
        for place, index in self._each(self.chosen):
            image, target = self.pool[index], int(self.answers[index])
            other = self.pool[int(self.chosen[place - 1])] if len(self.chosen) > 1 else image.flip(-1)
            orders = np.stack([order_of(values) for values in self.maps[place]])
            for way, removal in enumerate(ways):
                found_curves = deletion_insertion(self.model, image, other, target, orders, self.grid, removal)
                gains[way, :, place] = gain(found_curves, self.one_output)
                drawn[way] += found_curves / len(self.chosen)
            salience[:, place] = salience_order(self.model, image, target, self.maps[place])
        for way, removal in enumerate(ways):
            self.values[f"removal: {removal}"] = gains[way]
            self.mean_curves[removal] = {row.name: drawn[way, number].round(4).tolist() for number, row in enumerate(self.rows)}
        self.values["removal"] = gains.mean(axis=0)
        self.values["salience order"] = salience
        first = self.chosen[0]
        name = self.model.origin.class_name(int(self.answers[first]))
        told = name if self.one_output else f"{name}, {percent(float(self.confidence[first]))} sure"
        self._example("removal", self.pool[first], self.maps[0], told)

    def planted(self) -> None:
        """The head learns in seconds to tell pictures with a trigger from those without: then only the trigger decides."""
        others = np.setdiff1d(np.arange(len(self.pool)), self.chosen)
        learnt = self.pool[torch.from_numpy(others)] if len(others) >= 8 else self.pool
        for size in range(1, min(3, min(self.grid) // 2) + 1):
            try:
                head, accuracy = head_for_trigger(self.model, learnt, size, self.grid, self.seed)
            except (ConfigError, UsageError) as error:
                self.notes.append(f"no planted patch: {error.message}")
                return
            if accuracy >= PLANTED_SURE:
                break
        if accuracy < PLANTED_SURE:
            self.notes.append(f"no planted patch: the head tells it from none in {percent(accuracy)} of the pictures only")
            return
        bare = self.pool[torch.from_numpy(self.chosen)]
        made = with_triggers(self.model, bare, size, self.grid, self.seed + 1)
        decides = (logits_of(head, made.images).argmax(dim=1) == 1) & (logits_of(head, bare).argmax(dim=1) == 0)
        values = np.full((len(self.rows), len(bare)), np.nan)
        deciding = np.flatnonzero(to_numpy(decides))
        for place, index in self._each(deciding):
            maps = self._maps(head, made.images[index], 1, self._without(place))
            values[:, index] = of_each(partial(auroc_inside, inside=made.inside[index]), maps)
            if not place:
                told = f"a chequered square of {size} × {size} patches decides the class ({percent(accuracy)} right)"
                self._example("planted patch", made.images[index], maps, told, made.inside[index])
        if not len(deciding):
            self.notes.append("no planted patch: it decides none of the pictures that were kept")
            return
        self.values["planted patch"] = values

    def four(self) -> None:
        """Four pictures of four classes in one, explained for two of them; small pictures: the two likeliest classes of one picture."""
        shares, differences = [], []
        if self.model.config.classes == 1:
            self.notes.append("classes cannot be told apart: this model has one output")
            return
        sets = fours(self.confidence, self.answers, len(self.chosen), self.seed)
        if min(self.model.config.image_size) >= SMALLEST_MOSAIC and len(sets) > 1:
            for place, members in self._each(sets):
                image = mosaic(self.pool[torch.from_numpy(members)])
                maps = [self._maps(self.model, image, int(self.answers[members[corner]]), self._without(place)) for corner in (0, 3)]
                inside = [quadrant(corner, self.grid) for corner in (0, 3)]
                shares.append(
                    np.mean([of_each(partial(share_inside, inside=part), one) for part, one in zip(inside, maps, strict=True)], axis=0)
                )
                differences.append(of_each(unlikeness, *maps))
                if not place:
                    name = self.model.origin.class_name(int(self.answers[members[0]]))
                    self._example("four in one", image, maps[0], f"explained: {name}, top left", inside[0])
            self.values["four in one"] = np.array(shares).T
        else:
            self.notes.append(
                "no four pictures in one: these are too small or of too few classes; classes are told apart on single pictures"
            )
            for place, index in self._each(self.chosen):
                labels = int(self.answers[index]), int(self.runner_up[index])
                maps = [self._maps(self.model, self.pool[index], label, self._without(place)) for label in labels]
                differences.append(of_each(unlikeness, *maps))
        self.values["classes"] = np.array(differences).T

    def weights(self) -> None:
        """Weights permuted from the top downwards, anew for each picture: a map that does not change explains nothing that was learnt."""
        depth = len(self.model.map_names())
        depths = {"head": 0, "top third": math.ceil(depth / 3), "two thirds": math.ceil(2 * depth / 3), "everything": None}
        values = np.full((len(LEVELS), len(self.rows), len(self.chosen)), np.nan)
        for place, index in self._each(self.chosen):
            for number, level in enumerate(LEVELS):
                without = self._without(place) if level == "everything" else self.slow
                other = with_permuted_weights(self.model, depths[level], self.seed + place)
                maps = self._maps(other, self.pool[index], int(self.answers[index]), without)
                values[number, :, place] = of_each(rank_correlation, maps, self.maps[place])
            if not place:
                self._example("permuted weights", self.pool[index], maps, "maps of a model whose weights were shuffled")
        self.values["permuted weights"] = values[-1]
        for row, each in zip(self.rows, values.transpose(1, 0, 2), strict=True):
            known = [level[~np.isnan(level)] for level in each]
            self.levels[row.name] = [float(level.mean()) if len(level) else math.nan for level in known]

    def labels(self) -> None:
        """The head fitted once to what the model says and once to the same answers dealt out at random: do maps follow what was learnt?"""
        classes = np.unique(self.answers)
        if len(classes) < 2:
            told = "this model has one output" if self.model.config.classes == 1 else "the model gives all these pictures one class"
            self.notes.append(f"no permuted labels: {told}")
            return
        numbers = np.searchsorted(classes, self.answers)
        dealt = np.random.default_rng(self.seed).permutation(numbers)
        try:
            fitted = [head_for_labels(self.model, self.pool, labels, len(classes), self.seed) for labels in (numbers, dealt)]
        except (ConfigError, UsageError) as error:
            self.notes.append(f"no permuted labels: {error.message}")
            return
        values = []
        for place, index in self._each(self.chosen):
            each = zip(fitted, (numbers, dealt), strict=True)
            maps = [self._maps(model, self.pool[index], int(label[index]), self._without(place)) for model, label in each]
            values.append(of_each(rank_correlation, *maps))
        self.values["permuted labels"] = np.array(values).T

    def changes(self) -> None:
        """Noise, a mirror, a crop: the picture is the same to everybody, so the map should be."""
        kinds = ("noise", "crop", "mirror") if self.flips else ("noise", "crop")
        draw = torch.Generator().manual_seed(self.seed)
        values = np.full((len(kinds), len(self.rows), len(self.chosen)), np.nan)
        for place, index in self._each(self.chosen):
            for number, kind in enumerate(kinds):
                image, back = changed(self.pool[index], kind, self.grid, draw)
                if int(logits_of(self.model, image[None]).argmax()) != int(self.answers[index]):
                    continue  # to the model it is another picture
                without = self._without(place) if number == place % len(kinds) else self.slow
                maps = self._maps(self.model, image, int(self.answers[index]), without)
                values[number, :, place] = of_each(rank_correlation, *back(maps, self.maps[place]))
                if place == 0 and kind == "noise":
                    self._example("small changes", image, maps, "the same picture with noise", None)
        known = ~np.isnan(values)
        if not known.any():
            self.notes.append("no small changes: each of them changes the answer")
        else:  # a picture counts once, whatever was done to it
            sums = np.where(known, values, 0.0).sum(axis=0)
            self.values["small changes"] = np.where(known.any(axis=0), sums / known.sum(axis=0).clip(1), np.nan)

    def masks(self, inside: dict[int, np.ndarray]) -> None:
        self.values["masks"] = np.full((len(self.rows), len(self.chosen)), np.nan)
        for place, patches in inside.items():
            self.values["masks"][:, place] = of_each(partial(auroc_inside, inside=patches), self.maps[place])

    # ---- what they share -------------------------------------------------------------------------------------------------------

    def conclude(self) -> Audit:
        stats = {test: [summary(values, test) for values in each] for test, each in self.values.items()}
        by_name = {row.name: number for number, row in enumerate(self.rows)}
        better = {
            (reference.name, row.name): paired(self.values["removal"][by_name[row.name]], self.values["removal"][by_name[reference.name]])
            for reference in REFERENCES
            for row in self.rows
        }
        rows, values = [], {test: dict(zip(by_name, each, strict=True)) for test, each in self.values.items()}
        for number, row in enumerate(self.rows):
            tests = {test: known for test, each in stats.items() if (known := each[number]) is not None}
            beaten = {reference.name: better[reference.name, row.name] for reference in REFERENCES if reference.name != row.name}
            rows.append(verdict_of(row.name, tests, beaten, reference=row in REFERENCES))
        return Audit(tuple(rows), len(self.chosen), tuple(self.notes), self.levels, self.mean_curves, tuple(self.examples), values)

    def _each(self, items: Sequence[Any] | np.ndarray) -> Iterator[tuple[int, Any]]:
        """Places and pictures of a test; the bar moves on after each."""
        for place, item in enumerate(items):
            yield place, item
            self.advance()

    def _without(self, place: int) -> Sequence[int]:
        """The rows that are spared the picture in this place of a test: methods of many passes explain the first third, at least two."""
        return self.slow if place >= max(2, math.ceil(len(self.chosen) / SLOW_SHARE)) else ()

    def _maps(self, model: Classifier, image: torch.Tensor, target: int, without: Sequence[int] = ()) -> np.ndarray:
        """(R, h, w) of one image, from one watched pass; NaN for the rows of `without`."""
        rows = [row for number, row in enumerate(self.rows) if number not in without]
        tape = watch_for(model, image[None], rows)
        out = np.full((len(self.rows), *self.grid), np.nan)
        for number, row in enumerate(self.rows):
            if number not in without:
                made = call(row, tape, target=target) if row.explains else row.function(tape)
                out[number] = np.nan_to_num(on_grid(made.grid, self.grid))
        return out

    def _example(self, test: str, image: torch.Tensor, maps: np.ndarray, caption: str, inside: np.ndarray | None = None) -> None:
        named = {row.name: values for row, values in zip(self.rows, maps, strict=True) if not np.isnan(values).any()}
        self.examples.append(Example(test, as_pixels(self.model, image), named, caption, inside))


def of_each(measure: Callable[..., float], *maps: np.ndarray) -> np.ndarray:
    """(R,) a measure of each row's maps (R, h, w); NaN for a row that made none."""
    return np.array([measure(*row) if not np.isnan(row).any() else np.nan for row in zip(*maps, strict=True)])


def unlikeness(first: np.ndarray, second: np.ndarray) -> float:
    return 1 - rank_correlation(first, second)
