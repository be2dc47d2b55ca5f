"""What a model got right and wrong on a split, as the part of a page: scores, figures, and the pictures themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from vitral.base.errors import VitralError
from vitral.base.layout import answers_name
from vitral.data.decode import EXTENSIONS
from vitral.draw.charts import bar_chart, reliability_figure
from vitral.draw.matrices import confusion_figure
from vitral.report import inline
from vitral.report.render import percent
from vitral.report.stored import mapping, number
from vitral.run.answers import Answers

MOST = 40
"""Classes in a chart."""

Gallery = list[tuple[str, list[inline.Illustration]]]
"""Headings with the pictures under them."""


def how_it_did(test: dict[str, Any], folder: Path, page: Path, notes: list[str], split: str = "test") -> dict[str, Any]:
    """What `parts.html` shows of a test: `test` is what test.json holds, `folder` has the answers, `page` is where links start."""
    gallery: Gallery = []
    if (folder / answers_name(split)).is_file():
        try:
            gallery = pictures(Answers.read(folder, split), list(map(str, mapping(test.get("per_class") or test.get("classes")))), page)
        except (VitralError, IndexError, TypeError, ValueError) as error:
            notes.append(f"the pictures of {split} could not be shown ({error})")
    if "mean_average_precision" in test:
        return {**of_several(test), "gallery": gallery}
    columns = ["class", "recall", "precision", "F1"]
    return {"scores": scores(test), "columns": columns, "classes": by_class(test), "figures": figures(test), "gallery": gallery}


def of_several(test: dict[str, Any]) -> dict[str, Any]:
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
        "classes": [[name, rows[name].get("images"), *(percent(rows[name].get(key), 1) for key in keys)] for _, name in known],
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
    return [[name, percent(value, 1), percent(precision.get(name), 1), percent(f1.get(name), 1)] for value, name in present]


def pictures(answers: Answers, names: list[str], page: Path) -> Gallery:
    """The pictures that were kept beside the answers: by what they teach, then by class."""
    kept = answers.pictures or {}

    def name(number: int) -> str:
        return names[number] if 0 <= number < len(names) else f"class {number}"

    def tile(position: int) -> inline.Illustration:
        path = answers.paths[position] if answers.paths else ""
        return inline.of_image(kept[position], answers.told(position, name), link_to(path, page))

    groups = {**answers.notable(), **{f"of class {name(label)}": places for label, places in answers.by_class().items()}}
    shown = {title: [tile(int(place)) for place in places if int(place) in kept] for title, places in groups.items()}
    return [(title, tiles) for title, tiles in shown.items() if tiles]


def link_to(path: str, page: Path) -> str:
    """To the picture's file from the page, where there is one; nothing but pictures is linked to."""
    if Path(path).suffix.lower() not in EXTENSIONS or not Path(path).is_file():
        return ""
    return quote(Path(os.path.relpath(path, page.parent)).as_posix())


def figures(test: dict[str, Any]) -> list[inline.Illustration | str]:
    """What is confused with what, and whether the model knows how sure it may be."""
    class_names = list(map(str, mapping(test.get("per_class"))))
    try:
        counts, bins = np.asarray(test["confusion"]), test["calibration"]
        confusion = confusion_figure(counts, class_names if len(class_names) == len(counts) else ())
        confidence, accuracy, count = (np.asarray(bins[key]) for key in ("confidence", "accuracy", "count"))
        return [
            inline.of_figure(confusion, "Confusion matrix: true classes down, predicted ones across"),
            inline.of_figure(
                reliability_figure(confidence, accuracy, count, error=bins["error"]), "Calibration: is it right as often as it is sure?"
            ),
        ]
    except (KeyError, TypeError, ValueError, VitralError) as error:
        return [f"test.json could not be drawn ({type(error).__name__}: {error})"]
