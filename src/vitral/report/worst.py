"""The most confident errors of a whole data set, as one page: maps, neighbours, and what an audit said of the maps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base import layout
from vitral.base.errors import DataError, MissingError, UsageError, VitralError
from vitral.base.files import make_folder
from vitral.base.progress import say
from vitral.base.records import KINDS, read_records
from vitral.config import DataConfig
from vitral.data.images.decode import decode
from vitral.data.images.preprocess import Preprocess, viewable
from vitral.data.splits.open import open_split
from vitral.data.splits.split import Split
from vitral.look.method import RECORDS, choose
from vitral.look.notable import usual_method
from vitral.model.classifier import Classifier
from vitral.report import inline
from vitral.report.page import mapping, part, read_object, section, write_page
from vitral.report.test_results import ScoredImages, maps_caption, split_opener
from vitral.run.answers import CLASSES, Answers, MultiLabelAnswers, small
from vitral.run.folder import RunFolder
from vitral.run.made_here import made_here
from vitral.study.embed import nearest

_WORST = "worst.html"
_MORE = 6
"""Errors of one class, beside those that are shown already."""
_POOL = 2000
"""Pictures among which neighbours are looked for."""
_NEAR = 3
_EVAL = "write one: vitral eval MODEL DATA --out FOLDER, or --table FILE"


def read_scored(model: Classifier, path: str | Path, verdicts: Mapping[str, str] | None = None) -> ScoredImages:
    """What a run, `vitral eval --out` or `vitral eval --table` wrote, picture by picture."""
    path = Path(path)
    if not path.exists():
        raise MissingError(f"{path} does not exist", _EVAL)
    scored = replace(_of_folder(model, path) if path.is_dir() else _of_table(model, path), model=model, verdicts=verdicts or {})
    answers, classes = scored.answers, model.config.classes
    multi_label = isinstance(answers, MultiLabelAnswers)
    reach = answers.labels.shape[1] if multi_label else 1 + max(answers.labels.max(initial=-1), answers.predictions.max(initial=-1))
    if reach > classes or multi_label != model.origin.multi_label:
        raise DataError(f"{path} holds answers of another model: this one has {classes} classes", "score this one with vitral eval")
    return scored


def training_split(model: Classifier, run: str | Path, data: str | None = None) -> Split | None:
    """The pictures that a model learnt from: training pictures of `data`, or of a run that was made on this machine; None: not known."""
    folder = RunFolder(run)
    if data is None and not (folder.exists and made_here(folder.path)):
        return None
    config = DataConfig(data, on_bad_image="skip") if data is not None else folder.settled.data
    try:
        return open_split(config, Preprocess.of(model), "train", folder.learnt if data is None else None)
    except VitralError as error:
        if data is not None:
            raise
        say(f"note: no neighbours among what it learnt from: {error.message}")
        return None


def write_worst(
    scored: ScoredImages,
    out: str | Path,
    count: int,
    *,
    method: str | None = None,
    training_split: Split | None = None,
    name: str = "",
    command: str = "",
) -> Path:
    """The page in the folder `out`; its path. Errors whose images cannot be opened stand without maps, or are listed as missing.

    training_split: what the model learnt from; the nearest of it stand beside each error.
    """
    model, answers = scored.model, scored.answers
    assert model is not None
    method = _one_method(model, method)
    errors = [int(position) for position in answers.errors()]
    if not errors:
        raise UsageError(f"{scored.source} holds no errors: all {len(answers.labels):,} pictures are right", "there is nothing to show")
    groups = _groups(scored, errors, count)
    shown = [position for positions in groups.values() for position in positions]
    explained = scored.explain(shown, method)
    if not explained and not answers.pictures:
        raise MissingError(
            f"no picture that {scored.source} names can be opened", "of data without a file for each: vitral eval MODEL DATA --out FOLDER"
        )
    spread = np.unique(np.linspace(0, len(answers.labels) - 1, min(_POOL, len(answers.labels))).astype(np.int64)).tolist()
    neighbours = _neighbours(model, scored, list(explained), spread, training_split) if explained else {}
    judged = any(one.verdict for one in explained.values())
    page = make_folder(Path(out)) / _WORST
    lost = [position for position in shown if position not in explained]
    pool = f" (of {len(spread):,} pictures, evenly spread, and the errors on this page)" if len(spread) < len(answers.labels) else ""
    from_training = f"; learnt, those that the model learnt from, with their truth ({_pool_of(training_split)})" if training_split else ""
    maps = maps_caption(explained, model.origin.multi_label)
    maps += "" if judged or not explained else f" No audit of this model judged {method}: `vitral audit` does."
    legend = (
        "The truth, the answer, and with what confidence; then the maps, then the pictures nearest to it in what the head reads, with "
        f"their cosine: near, those that were scored, with truth and answer{pool}{from_training}. {maps}"
    )
    rows = _classes(scored, errors)
    return write_page(
        page,
        f"The most confident errors of {name or model.origin.source.value}",
        [
            section("Errors by class", part("table", rows, ["class", "pictures", "errors", "most often taken for"])),
            section("Pictures", legend, part("gallery", scored.gallery(groups, page, explained, neighbours))),
            section("Write it again", part("code", command)),
        ],
        lead=f"{len(errors):,} of {len(answers.labels):,} pictures of {scored.source} are answered wrongly",
        notes=[f"{len(lost)} of {len(shown)} pictures could not be opened: they stand without maps, or are left out"] if lost else [],
    )


def _of_folder(model: Classifier, folder: Path) -> ScoredImages:
    if not (folder / layout.answers_name()).is_file():
        raise MissingError(f"{folder} holds no test answers ({layout.answers_name()})", _EVAL)
    scores = read_object(folder / layout.scores_name(), [])
    answers = Answers.read(folder)
    names = list(map(str, mapping(scores.get("per_class") or scores.get("classes"))))
    run = RunFolder(folder)
    if run.exists and not made_here(folder):
        raise UsageError(
            f"{folder} was not made on this machine: the pictures that it names are not opened",
            "score it here: vitral eval MODEL DATA --out FOLDER, then name that folder",
        )
    own = run.exists and "data" not in scores  # eval may have written into a model's folder
    data = run.settled.data if own else DataConfig(str(scores.get("data") or "folder:"))
    if ":" in data.name or all(Path(path).is_file() for path in answers.paths[:1]):
        return ScoredImages(answers, names, source=str(folder))
    split = open_split(data, Preprocess.of(model), "test" if own else str(scores.get("split") or "test"))
    return ScoredImages(answers, names, opener=split_opener(split), source=str(folder))


def _of_table(model: Classifier, path: Path) -> ScoredImages:
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"{path} is neither a folder nor a table of answers", _EVAL)
    rows = read_records(path)
    if missing := [name for name in ("path", "truth", "answer", "confidence") if not rows or name not in rows[0]]:
        hint = "of several labels a picture, use --out FOLDER" if missing == ["confidence"] else _EVAL
        raise DataError(f"{path} has no column {missing[0]}", hint)
    names = [model.origin.class_name(number) for number in range(model.config.classes)]
    numbers = {**{str(number): number for number in range(len(names))}, **{name: number for number, name in enumerate(names)}}
    try:
        labels, predictions = (np.array([numbers[str(row[key])] for row in rows], np.int64) for key in ("truth", "answer"))
        shares = np.array([[float(row["confidence"])] for row in rows])
    except KeyError as error:
        raise DataError(f"{path} names {error}, which is no class of this model", "score this model with vitral eval") from None
    except (TypeError, ValueError) as error:
        raise DataError(f"{path} has a confidence that is no number ({error})", _EVAL) from None
    answers = Answers(predictions, labels, tuple(str(row["path"]) for row in rows), predictions[:, None], shares)
    return ScoredImages(answers, names, source=str(path))


def _one_method(model: Classifier, method: str | None) -> str:
    if method is None:
        return usual_method(model)
    chosen = choose(model, method.split(","))
    if len(chosen) != 1:
        raise UsageError("--worst draws maps by one method", f"name one, such as {usual_method(model)}")
    if not chosen[0].explains or not chosen[0].supports(model):
        fitting = [name for name, record in RECORDS.items() if record.explains and record.gradients and record.supports(model)]
        raise UsageError(f"{chosen[0].name} does not explain a class of this model", f"use one of {', '.join(fitting)}")
    return chosen[0].name


def _class_of(answers: Answers, position: int) -> int:
    """The class that an error counts for: the truth; of several labels, the one missed by most, else the one that is not there."""
    return answers.disputed(position)[-1]


def _groups(scored: ScoredImages, errors: list[int], count: int) -> dict[str, list[int]]:
    """The first of all, then more of each of the classes with most errors; no picture stands twice."""
    answers, groups = scored.answers, {"most confident errors": errors[:count]}
    often = Counter(_class_of(answers, position) for position in errors)
    for label, _ in often.most_common(CLASSES):
        more = [position for position in errors[count:] if _class_of(answers, position) == label]
        groups[f"more of class {scored.name(label)}"] = more[: min(count, _MORE)]
    return groups


def _classes(scored: ScoredImages, errors: list[int]) -> list[list[Any]]:
    """Name, pictures, errors, and what it is taken for most often, of each class with errors, most errors first."""
    answers = scored.answers
    often = Counter(_class_of(answers, position) for position in errors)
    instead = Counter(tuple(answers.disputed(position)) for position in errors)
    rows = []
    for label, wrong in often.most_common():
        pictures = answers.labels[:, label].sum() if isinstance(answers, MultiLabelAnswers) else (answers.labels == label).sum()
        taken = [(times, pair[0]) for pair, times in instead.items() if len(pair) == 2 and pair[1] == label]
        times, other = max(taken, default=(0, -1))
        rows.append([scored.name(label), int(pictures), wrong, f"{scored.name(other)} ({times})" if times else ""])
    return rows


def _neighbours(
    model: Classifier, scored: ScoredImages, errors: list[int], spread: list[int], training: Split | None
) -> dict[int, list[inline.Illustration]]:
    """The nearest of the scored images, then of those learnt from, which have the numbers after them."""
    answers, count = scored.answers, len(scored.answers.labels)
    bank = training.balanced_subset(min(_POOL, len(training)), 0) if training else None

    def picture(number: int) -> Any:
        return scored.open(number) if number < count or bank is None else bank.picture(number - count)

    def tile(number: int, cosine: float) -> inline.Illustration:
        cosine = round(cosine, 2) + 0.0  # no −0.00
        if number < count or bank is None:
            caption = f"near ({cosine:.2f}): {answers.told(number, scored.name)}"
        else:
            caption = f"learnt ({cosine:.2f}): {bank.label_text(number - count)}"
        return inline.of_image(small(viewable(decode(picture(number)))), caption)

    neighbours: dict[int, list[inline.Illustration]] = {}
    for among in ({*spread, *errors}, range(count, count + len(bank)) if bank else ()):
        for position, near in (nearest(model, picture, errors, among, _NEAR) if among else {}).items():
            neighbours.setdefault(position, []).extend(tile(*one) for one in near)
    return neighbours


def _pool_of(training: Split) -> str:
    return (
        f"{min(_POOL, len(training)):,} of {len(training):,}, of all classes alike" if len(training) > _POOL else f"all {len(training):,}"
    )
