"""What a model got right and wrong on a split, as sections of a page: scores, figures, and the images.

Reports of runs contain them; `vitral eval --out` writes a page of them alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from vitral.base.errors import MissingError, VitralError
from vitral.base.files import make_folder, write_json
from vitral.base.layout import REPORT, answers_name, scores_name
from vitral.data.images.decode import EXTENSIONS
from vitral.data.splits.split import Split
from vitral.draw.charts import bar_chart, reliability_figure
from vitral.draw.matrices import confusion_figure
from vitral.look.notable import Explained, explain
from vitral.model.classifier import Classifier
from vitral.report import inline
from vitral.report.page import Section, mapping, number, part, percent, section, write_page
from vitral.run.answers import Answers
from vitral.train.evaluate import Scored

_MOST = 40
"""Classes in a chart."""
_MOST_MAPS = 64
"""Images of one page that get maps: more, and a page would be slow to write and heavy to send."""
_WORST_FIRST = "class by class, the worst first"
_MULTI_LABEL_WRONG = "stand those of the wrong label that it was surest of and of the one that it missed by most, where there are such"


def _open_file(answers: Answers, position: int) -> Path:
    """The file of an image, where it still is."""
    path = answers.paths[position] if answers.paths else ""
    if not _is_picture(path):
        raise MissingError(f"there is no picture {path!r} any more", "it was moved or removed")
    return Path(path)


def split_opener(split: Split) -> Callable[[Answers, int], Any]:
    """Opens the images of a split by what the answers call them: for data without a file for each image."""
    rows = {split.where(row): row for row in range(len(split))}

    def opened(answers: Answers, position: int) -> Any:
        if not answers.paths and len(answers.labels) == len(split):
            return split.picture(position)
        path = answers.paths[position] if answers.paths else ""
        if path not in rows:
            raise MissingError(f"{split.name} has no picture {path!r}", "name the data that was scored")
        return split.picture(rows[path])

    return opened


@dataclass(frozen=True)
class ScoredImages:
    """Answers, the names of their classes, a way to open their images, and the model that explains them."""

    answers: Answers
    names: list[str]
    model: Classifier | None = None
    """None: images have no maps."""
    opener: Callable[[Answers, int], Any] = _open_file
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """What an audit of the model found about each method."""
    source: str = ""

    def open(self, position: int) -> Any:
        return self.opener(self.answers, position)

    def name(self, label: int) -> str:
        return self.names[label] if 0 <= label < len(self.names) else f"class {label}"

    def explain(self, positions: Iterable[int], method: str | None = None) -> dict[int, Explained]:
        return explain(self.model, self.answers, positions, self.open, method, self.verdicts) if self.model is not None else {}

    def explain_notable(self) -> dict[int, Explained]:
        """Maps for the images that teach most, and for those of each class while they are few."""
        first = [int(position) for positions in self.answers.notable().values() for position in positions]
        others = [int(position) for positions in self.answers.by_class().values() for position in positions]
        positions = list(dict.fromkeys([*first, *others]))
        return self.explain(positions if len(positions) <= _MOST_MAPS else dict.fromkeys(first))

    def notable_gallery(self, page: Path, explained: dict[int, Explained]) -> inline.Gallery:
        """The images stored with the answers: the notable ones, then by class; each with its maps."""
        notable = self.answers.notable()
        above = {int(position) for positions in notable.values() for position in positions}  # no image stands twice
        by_label = {
            f"more of class {self.name(label)}": [position for position in positions if int(position) not in above]
            for label, positions in self.answers.by_class().items()
        }
        return self.gallery({**notable, **by_label}, page, explained)

    def gallery(
        self,
        groups: Mapping[str, Iterable[int]],
        page: Path,
        explained: dict[int, Explained],
        neighbours: Mapping[int, Sequence[inline.Illustration]] | None = None,
    ) -> inline.Gallery:
        """The images at these positions under their headings, without those that were neither stored nor opened.

        `neighbours`: what else stands by an image, after its maps.
        """
        answers, stored, more = self.answers, self.answers.pictures or {}, neighbours or {}

        def tile(position: int) -> inline.Illustration:
            path = answers.paths[position] if answers.paths else ""
            one, caption, others = explained.get(position), answers.told(position, self.name), more.get(position, ())
            if one is None:
                return inline.of_image(stored[position], caption, link_to(path, page), others)
            overlays = zip(one.overlays(), one.heats, strict=True)
            maps = [inline.of_image(image, f"for {self.name(int(heat.target))}") for image, heat in overlays]  # type: ignore[arg-type]
            return inline.of_image(one.picture(), caption, link_to(path, page), [*maps, *others])

        there = {*stored, *explained}
        shown = {title: [tile(int(position)) for position in positions if int(position) in there] for title, positions in groups.items()}
        return [(title, tiles) for title, tiles in shown.items() if tiles]


def write_evaluation(
    result: Scored, folder: str | Path, model: str, data: str, command: str = "", classifier: Classifier | None = None
) -> Path:
    """test.json, test.npz, test.webp and report.html in `folder`; the page's path. `classifier`: the model itself, for maps."""

    def opener(_: Answers, position: int) -> Any:
        assert result.split is not None
        return result.split.picture(int(result.positions[position]))

    classifier = classifier if result.split is not None else None
    folder = make_folder(Path(folder))
    scores = {"model": model, "data": data, "split": result.split.name if result.split else "all", **result.to_dict()}
    result.answers().write(folder)
    write_json(folder / scores_name(), scores)
    notes: list[str] = []
    page = folder / REPORT
    sections = results_sections(scores, folder, page, notes, scored=partial(ScoredImages, model=classifier, opener=opener))
    lead = f"{result.headline} on {len(result.labels):,} pictures ({scores['split']})"
    return write_page(page, f"{model} on {data}", [*sections, section("Score it again", part("code", command))], lead, notes)


def results_sections(
    test: dict[str, Any],
    folder: Path,
    page: Path,
    notes: list[str],
    split: str = "test",
    scored: Callable[[Answers, list[str]], ScoredImages] = ScoredImages,
) -> list[Section]:
    """Scores, figures and classes of a test, then its images. The first section has no heading.

    test: what test.json holds. folder: has the answers. page: where links start. scored: what opens and explains the images.
    """
    gallery: inline.Gallery = []
    explained: dict[int, Explained] = {}
    if (folder / answers_name(split)).is_file():
        try:
            images = scored(Answers.read(folder, split), list(map(str, mapping(test.get("per_class") or test.get("classes")))))
            explained = images.explain_notable()
            gallery = images.notable_gallery(page, explained)
        except (VitralError, IndexError, TypeError, ValueError) as error:
            notes.append(f"the pictures of {split} could not be shown ({error})")
    multi_label = "mean_average_precision" in test
    sections = [_multi_label_results(test) if multi_label else _results(test)]
    if gallery:
        caption = maps_caption(explained, multi_label)
        more = f"; a click on a map enlarges it. {caption}" if caption else "."
        words = "What it is, what the model answered, and with what confidence. A click on a picture opens its file where it still is"
        sections.append(section("Pictures", words + more, part("gallery", gallery), level=3))
    return sections


def _results(test: dict[str, Any]) -> Section:
    shares = {
        "right at first guess": "top1",
        "right within five guesses": "top5",
        "balanced accuracy (mean of the classes)": "balanced_accuracy",
        "F1 (mean of the classes)": "f1",
    }
    recall, precision, f1 = (mapping(test.get(key)) for key in ("per_class", "precision", "f1_per_class"))
    ranked = sorted((value, name) for name, value in recall.items() if isinstance(value, int | float))
    rows = [[name, percent(value), percent(precision.get(name)), percent(f1.get(name))] for value, name in ranked]
    scores = {name: percent(test[key]) for name, key in shares.items() if key in test}
    return section(
        "",
        _scores(test, scores),
        part("figures", _figures(test)),
        part("table", rows, ["class", "recall", "precision", "F1"], _WORST_FIRST),
    )


def _multi_label_results(test: dict[str, Any]) -> Section:
    """The same of images with several labels: average precision of each class, and how its threshold does."""
    shares = {
        "mean average precision (mAP)": "mean_average_precision",
        "F1 at the thresholds (mean of the classes)": "f1",
        "pictures with every label right": "exact",
        "pictures whose most probable class is one of their labels": "top1",
    }
    classes = {name: mapping(row) for name, row in mapping(test.get("classes")).items()}
    ranked = sorted((value, name) for name, row in classes.items() if (value := number(row.get("average_precision"))) is not None)
    keys = ("average_precision", "threshold", "recall", "precision", "f1")
    figures: list[inline.Illustration] = []
    if ranked:
        shown = ranked[:_MOST]
        chart = bar_chart([name for _, name in shown], [100 * value for value, _ in shown], label="average precision (%)", form="{:.1f}")
        figures = [inline.of_figure(chart, f"Average precision of {'each class' if shown == ranked else f'the {_MOST} worst classes'}")]
    columns = ["class", "pictures", "average precision", "threshold", "recall", "precision", "F1"]
    rows = [[name, classes[name].get("images"), *(percent(classes[name].get(key)) for key in keys)] for _, name in ranked]
    scores = {name: percent(test.get(key)) for name, key in shares.items()}
    return section("", _scores(test, scores), part("figures", figures), part("table", rows, columns, _WORST_FIRST))


def _scores(test: dict[str, Any], scores: dict[str, str]) -> list[Markup]:
    unreadable = {"unreadable": test["skipped"]} if test.get("skipped") else {}
    return part("named_values", {"pictures": test.get("pictures"), **scores, **unreadable})


def maps_caption(explained: dict[int, Explained], multi_label: bool = False) -> str:
    if not explained:
        return ""
    one = next(iter(explained.values()))
    method = one.heats[0].method.replace("_", " ")
    verdict = f" The audit of this model says of {method}: {one.verdict}." if one.verdict else ""
    return (
        f"Light on a picture is what speaks for the class named under it ({method}); each map has its own scale, from its lowest value to "
        f"its 97th percentile. Under an error {_MULTI_LABEL_WRONG if multi_label else 'stand two: for the answer, and for the truth'}."
    ) + verdict


def link_to(path: str, page: Path) -> str:
    """To the picture's file from the page, where there is one; nothing but pictures is linked to."""
    if not _is_picture(path):
        return ""
    return quote(Path(os.path.relpath(path, page.parent)).as_posix())


def _is_picture(path: str) -> bool:
    return Path(path).suffix.lower() in EXTENSIONS and Path(path).is_file()


def _figures(test: dict[str, Any]) -> list[inline.Illustration | str]:
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
