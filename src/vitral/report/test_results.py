"""What a model got right and wrong on a split, as the part of a page: scores, figures, and the pictures themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from vitral.base.errors import MissingError, VitralError
from vitral.base.layout import answers_name
from vitral.data.images.decode import EXTENSIONS
from vitral.data.splits.split import Split
from vitral.draw.charts import bar_chart, reliability_figure
from vitral.draw.matrices import confusion_figure
from vitral.look.notable import Explained, explain
from vitral.model.classifier import Classifier
from vitral.report import inline
from vitral.report.lenient_json import mapping, number
from vitral.report.render import percent
from vitral.run.answers import Answers

MOST = 40
"""Classes in a chart."""

Gallery = list[tuple[str, list[inline.Illustration]]]
"""Headings with the pictures under them."""
Explainer = Callable[[Answers], dict[int, Explained]]
Opener = Callable[[Answers, int], Any]
MOST_MAPS = 64
"""Pictures of one page that get maps: more, and a page would be slow to write and heavy to send."""


def results_section(
    test: dict[str, Any], folder: Path, page: Path, notes: list[str], split: str = "test", explainer: Explainer | None = None
) -> dict[str, Any]:
    """What `parts.html` shows of a test: `test` is what test.json holds, `folder` has the answers, `page` is where links start.

    `explainer` gives the pictures their maps; None: they stand alone.
    """
    found: Gallery = []
    explained: dict[int, Explained] = {}
    if (folder / answers_name(split)).is_file():
        try:
            answers = Answers.read(folder, split)
            explained = explainer(answers) if explainer else {}
            found = pictures(answers, list(map(str, mapping(test.get("per_class") or test.get("classes")))), page, explained)
        except (VitralError, IndexError, TypeError, ValueError) as error:
            notes.append(f"the pictures of {split} could not be shown ({error})")
    shown = {"gallery": found, "maps": maps_caption(explained, multi_label := "mean_average_precision" in test)}
    if multi_label:
        return {**multi_label_section(test), **shown}
    columns = ["class", "recall", "precision", "F1"]
    return {"scores": scores(test), "columns": columns, "classes": by_class(test), "figures": figures(test), **shown}


def multi_label_section(test: dict[str, Any]) -> dict[str, Any]:
    """The same of several labels a picture: average precision of each class, and how its threshold does."""
    shares = {
        "mean average precision (mAP)": "mean_average_precision",
        "F1 at the thresholds (mean of the classes)": "f1",
        "pictures with every label right": "exact",
        "pictures whose most probable class is one of their labels": "top1",
    }
    told = {name: percent(test.get(key)) for name, key in shares.items()}
    rows = {name: mapping(row) for name, row in mapping(test.get("classes")).items()}
    known = sorted((value, name) for name, row in rows.items() if (value := number(row.get("average_precision"))) is not None)
    keys = ("average_precision", "threshold", "recall", "precision", "f1")
    drawn: list[inline.Illustration | str] = []
    if known:
        shown = known[:MOST]
        chart = bar_chart([name for _, name in shown], [100 * value for value, _ in shown], label="average precision (%)", form="{:.1f}")
        drawn = [inline.of_figure(chart, f"Average precision of {'each class' if shown == known else f'the {MOST} worst classes'}")]
    return {
        "scores": {"pictures": test.get("pictures"), **told, **({"unreadable": test["skipped"]} if test.get("skipped") else {})},
        "columns": ["class", "pictures", "average precision", "threshold", "recall", "precision", "F1"],
        "classes": [[name, rows[name].get("images"), *(percent(rows[name].get(key)) for key in keys)] for _, name in known],
        "figures": drawn,
    }


def scores(test: dict[str, Any]) -> dict[str, Any]:
    shares = {
        "right at first guess": "top1",
        "right within five guesses": "top5",
        "balanced accuracy (mean of the classes)": "balanced_accuracy",
        "F1 (mean of the classes)": "f1",
    }
    told = {name: percent(test[key]) for name, key in shares.items() if key in test}
    return {"pictures": test.get("pictures"), **told, **({"unreadable": test["skipped"]} if test.get("skipped") else {})}


def by_class(test: dict[str, Any]) -> list[list[str]]:
    """Name, recall, precision and F1 of each class, the worst first."""
    recall, precision, f1 = (mapping(test.get(key)) for key in ("per_class", "precision", "f1_per_class"))
    present = sorted((value, name) for name, value in recall.items() if isinstance(value, int | float))
    return [[name, percent(value), percent(precision.get(name)), percent(f1.get(name))] for value, name in present]


def explainer_of(model: Classifier, picture: Opener, verdicts: Mapping[str, str] | None = None) -> Explainer:
    """Maps for the pictures that teach most, and for those of each class while they are few; `picture` opens the one at a position.

    `verdicts`: what an audit of the model said of each method.
    """

    def explained(answers: Answers) -> dict[int, Explained]:
        first = [int(position) for positions in answers.notable().values() for position in positions]
        others = [int(position) for positions in answers.by_class().values() for position in positions]
        wanted = list(dict.fromkeys([*first, *others]))
        wanted = wanted if len(wanted) <= MOST_MAPS else dict.fromkeys(first)
        return explain(model, answers, wanted, partial(picture, answers), verdicts=verdicts)

    return explained


def split_opener(split: Split) -> Opener:
    """Pictures of a data set by what the answers call them: for sets without a file for each picture."""
    places = {split.where(position): position for position in range(len(split))}

    def opened(answers: Answers, position: int) -> Any:
        if not answers.paths and len(answers.labels) == len(split):
            return split.picture(position)
        path = answers.paths[position] if answers.paths else ""
        if path not in places:
            raise MissingError(f"{split.name} has no picture {path!r}", "name the data that was scored")
        return split.picture(places[path])

    return opened


def open_file(answers: Answers, position: int) -> Path:
    """The file of a picture, where it still is."""
    path = answers.paths[position] if answers.paths else ""
    if not _is_picture(path):
        raise MissingError(f"there is no picture {path!r} any more", "it was moved or removed")
    return Path(path)


MULTI_LABEL_WRONG = "stand those of the wrong label that it was surest of and of the one that it missed by most, where there are such"


def maps_caption(explained: dict[int, Explained], multi_label: bool = False) -> str:
    if not explained:
        return ""
    one = next(iter(explained.values()))
    method = one.heats[0].method.replace("_", " ")
    verdict = f" The audit of this model says of {method}: {one.verdict}." if one.verdict else ""
    return (
        f"Light on a picture is what speaks for the class named under it ({method}); each map has its own scale, from its lowest value to "
        f"its 97th percentile. Under an error {MULTI_LABEL_WRONG if multi_label else 'stand two: for the answer, and for the truth'}."
    ) + verdict


def pictures(answers: Answers, names: list[str], page: Path, explained: dict[int, Explained]) -> Gallery:
    """The pictures that were kept beside the answers: by what they teach, then by class; each with its maps."""
    notable = answers.notable()
    above = {int(place) for places in notable.values() for place in places}  # no picture stands twice
    by_label = {
        f"more of class {name_in(names, label)}": [place for place in places if int(place) not in above]
        for label, places in answers.by_class().items()
    }
    return gallery(answers, {**notable, **by_label}, names, page, explained)


def gallery(
    answers: Answers,
    groups: Mapping[str, Iterable[int]],
    names: list[str],
    page: Path,
    explained: dict[int, Explained],
    beside: Mapping[int, Sequence[inline.Illustration]] | None = None,
) -> Gallery:
    """The pictures at these positions under their headings, those left out that were neither kept nor opened.

    `beside`: what else stands by a picture, after its maps.
    """
    kept, name, more = answers.pictures or {}, partial(name_in, names), beside or {}
    there = {*kept, *explained}

    def tile(position: int) -> inline.Illustration:
        path = answers.paths[position] if answers.paths else ""
        one, caption, others = explained.get(position), answers.describe(position, name), more.get(position, ())
        if one is None:
            return inline.of_image(kept[position], caption, link_to(path, page), others)
        maps = [inline.of_image(image, f"for {name(int(heat.target))}") for image, heat in zip(one.overlays(), one.heats, strict=True)]  # type: ignore[arg-type]
        return inline.of_image(one.picture(), caption, link_to(path, page), [*maps, *others])

    shown = {title: [tile(int(place)) for place in places if int(place) in there] for title, places in groups.items()}
    return [(title, tiles) for title, tiles in shown.items() if tiles]


def name_in(names: list[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else f"class {number}"


def link_to(path: str, page: Path) -> str:
    """To the picture's file from the page, where there is one; nothing but pictures is linked to."""
    if not _is_picture(path):
        return ""
    return quote(Path(os.path.relpath(path, page.parent)).as_posix())


def _is_picture(path: str) -> bool:
    return Path(path).suffix.lower() in EXTENSIONS and Path(path).is_file()


def figures(test: dict[str, Any]) -> list[inline.Illustration | str]:
    """What is confused with what, and whether the model knows what its confidence is worth."""
    class_names = list(map(str, mapping(test.get("per_class"))))
    try:
        counts, bins = np.asarray(test["confusion"]), test["calibration"]
        confusion = confusion_figure(counts, class_names if len(class_names) == len(counts) else ())
        confidence, accuracy, count = (np.asarray(bins[key]) for key in ("confidence", "accuracy", "count"))
        reliability = reliability_figure(confidence, accuracy, count, error=bins["error"])
        return [
            inline.of_figure(confusion, "Confusion matrix: true classes down, predicted ones across"),
            inline.of_figure(reliability, "Calibration: is it right as often as its confidence says?"),
        ]
    except (KeyError, TypeError, ValueError, VitralError) as error:
        return [f"test.json could not be drawn ({type(error).__name__}: {error})"]
