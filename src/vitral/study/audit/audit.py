"""Which explanation of this model can be trusted: every method against planted truth, removal, permuted weights, small changes.

The audit needs no labels: a map explains the model's answer, correct or not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitral.base.errors import DataError, UsageError
from vitral.base.progress import progress, watched
from vitral.look import references
from vitral.look.method import Method, choose
from vitral.look.occlusion import grid_of
from vitral.model.classifier import Classifier
from vitral.study.audit.pictures import SURE, open_pictures, read_masks
from vitral.study.audit.tests import TESTS, Example, Measured, Subjects, inside_masks
from vitral.study.audit.verdict import TESTS as MEASURES
from vitral.study.audit.verdict import Row, paired, summary, verdict_of

PICTURES = 12
_POOL = 40
"""Images besides the explained ones: heads are fitted to them, and confident answers are chosen among all."""
_REFERENCES = (
    Method(references.random, "noise"),
    Method(references.edges, "Sobel's edges"),
    Method(references.centre, "the nearer to the middle the more"),
)


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
    """For each test and row: a number for each image, or for each set of four; NaN where it was spared or could not be measured."""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "pictures": self.pictures,
            "rows": [row.to_dict() for row in self.rows],
            "tests": MEASURES,
            "notes": list(self.notes),
            "levels": self.levels,
            "curves": self.curves,
            "values": {test: {name: each.round(4).tolist() for name, each in rows.items()} for test, rows in self.values.items()},
            "seconds": self.seconds,
        }


def audit(
    model: Classifier,
    data: Any,
    methods: Sequence[str | Method] = (),
    *,
    split: str | None = None,
    pictures: int = PICTURES,
    masks: str | Path | None = None,
    seed: int = 0,
    quiet: bool = False,
) -> Audit:
    """Every method (default: the usual ones that suit the model) and three references through every test that the model allows.

    data: the name of a data set or a DataConfig, a folder of images, or images. methods: names, or methods of your own.
    (white: inside) for each image, by its name.
    """
    rows = _rows(model, methods)
    if pictures < 2:
        raise UsageError(f"an audit of {pictures} picture(s) has no intervals", f"use at least 2, better {PICTURES}")
    model = model.eval()
    opened, flips = open_pictures(model, data, split, _POOL + pictures, seed)
    if len(opened) < 2:
        raise DataError(f"{len(opened)} of the pictures can be opened", f"an audit needs 2 or more, better {PICTURES}")
    weight = next(model.parameters())
    images = torch.stack([picture.tensor for picture in opened]).to(weight.device, weight.dtype)
    subjects = Subjects.of(model, [*rows, *_REFERENCES], images, pictures, flips=flips, seed=seed)
    tests = dict(TESTS)
    if masks is not None:  # read before anything is spent
        sources = [opened[index].source for index in subjects.chosen]
        tests["masks"] = partial(inside_masks, masks=read_masks(model, Path(masks), sources, subjects.grid))
    count = len(subjects.chosen)
    with progress("Auditing: maps", (len(tests) + 1) * count, quiet) as bar, watched(lambda _: None):
        subjects = dataclasses.replace(subjects, advance=bar.advance)
        maps, results = subjects.maps(), []
        for number, (name, test) in enumerate(tests.items(), 2):
            bar.description = f"Auditing: {name}"
            results.append(test(subjects, maps))
            bar.advance(number * count - bar.done)  # where a test had fewer images, or was left out
        seconds = bar.seconds
    return _conclude(subjects, results, seconds)


def _rows(model: Classifier, methods: Sequence[str | Method]) -> list[Method]:
    """The methods to audit; raises where none suits the model."""
    if not model.config.classes:
        raise UsageError("this model has no head, so there is no class to explain", "give it one: vitral probe or vitral train finetune")
    names, own = [name for name in methods if isinstance(name, str)], [method for method in methods if isinstance(method, Method)]
    rows = [*([method for method in choose(model, names) if method.supports(model)] if names or not own else []), *own]
    if not rows:
        raise UsageError("none of these methods suits this model", "choose others with --methods")
    called = [row.name for row in (*rows, *_REFERENCES)]
    if twice := next((name for name in called if called.count(name) > 1), None):
        raise UsageError(f"two methods are called {twice}", "give yours another name")
    if min(grid_of(model)) < 2:
        raise UsageError("a map of one row or column cannot be audited", "use a model with at least 2 × 2 patches")
    return rows


def _conclude(subjects: Subjects, results: Sequence[Measured], seconds: float) -> Audit:
    names = [row.name for row in subjects.rows]
    notes = [note for result in results for note in result.notes]
    unsure = int((subjects.confidence[subjects.chosen] < SURE).sum())
    if unsure and not subjects.one_output:
        notes.insert(0, f"the model is less than half sure of {unsure} of the {len(subjects.chosen)} pictures")
    values = {test: dict(zip(names, each, strict=True)) for result in results for test, each in result.values.items()}
    rows = []
    for row in subjects.rows:
        stats = {test: summary(each[row.name], test) for test, each in values.items()}
        measured = {test: one for test, one in stats.items() if one is not None}
        references = [reference.name for reference in _REFERENCES if reference.name != row.name]
        beaten = {name: paired(values["removal"][row.name], values["removal"][name]) for name in references}
        rows.append(verdict_of(row.name, measured, beaten, reference=row in _REFERENCES))
    return Audit(
        tuple(rows),
        len(subjects.chosen),
        tuple(notes),
        {row: each for result in results for row, each in result.levels.items()},
        {way: each for result in results for way, each in result.curves.items()},
        tuple(result.example for result in results if result.example is not None),
        values,
        seconds,
    )
