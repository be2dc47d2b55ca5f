"""A run folder → one page: what was trained, how well it does, its figures, and how to do it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base.errors import DataError, UsageError, VitralError
from vitral.base.origin import Fact, Origin
from vitral.config import RunConfig, from_dict
from vitral.report.command import training_command
from vitral.report.page import Cell, Page, duration, percent, show
from vitral.report.parts import environment_section, figures_section, optional_object, read_object

Metrics = list[dict[str, Any]]


def write_run_report(run_folder: str | Path, out: str | Path | None = None) -> Path:
    """The report of a run, at `out` or in the run folder as report.html; its path."""
    folder = Path(run_folder)
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} is no run folder: it has no config.json", "name a folder that `vitral train` wrote")
    config = read_object(folder / "config.json")
    metrics, trouble = read_lines(folder / "metrics.jsonl")
    name = str(config.get("name") or folder.name)
    page = Page(name, headline(metrics))
    for line in trouble:
        page.note(line)
    _results(page, folder, name, metrics, config)
    figures_section(page, folder, f"make some with `vitral figures {folder.name} --out {folder.name}/figures`")
    _origin(page, config.get("origin"))
    _settings(page, config)
    environment = optional_object(page, folder / "env.json", "the machine and the versions are not known")
    environment_section(page, {key: value for key, value in environment.items() if key != "data"})
    if isinstance(environment.get("data"), dict):
        page.facts(environment["data"], "the data")
    _again(page, config)
    return page.write(out or folder / "report.html")


def headline(metrics: Metrics) -> str:
    """`97.8 % right on test after 60 epochs and 41.0 s`."""
    test = last(metrics, "test")
    told = f"{percent(test.get('accuracy'))} right on test" if test else ""
    if not told and (validation := last(metrics, "validation")):
        told = f"{percent(validation.get('accuracy'))} right on validation; the test split has not been opened"
    if not told:
        return "not trained to the end"
    end = metrics[-1]
    return f"{told}, after {show(end.get('epoch'))} epochs and {duration(end.get('seconds'))}"


def read_lines(path: Path) -> tuple[Metrics, list[str]]:
    """The lines of a metrics.jsonl that can be read, and what to say about the rest."""
    if not path.is_file():
        return [], ["metrics.jsonl is missing: there is nothing to draw curves from. `vitral train` writes it"]
    rows: Metrics = []
    bad = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
            rows.append(row) if isinstance(row, dict) else None
            bad += not isinstance(row, dict)
        except json.JSONDecodeError:
            bad += 1
    return rows, [f"{bad} line(s) of metrics.jsonl could not be read and were left out"] if bad else []


def last(metrics: Metrics, split: str) -> dict[str, Any]:
    return next((row for row in reversed(metrics) if row.get("split") == split), {})


def _results(page: Page, folder: Path, name: str, metrics: Metrics, config: dict[str, Any]) -> None:
    page.section("Results")
    rows = [("train, last epoch", _last_epoch(metrics)), *((split, last(metrics, split)) for split in ("validation", "test"))]
    validations = [row for row in metrics if row.get("split") == "validation" and isinstance(row.get("accuracy"), int | float)]
    if validations:
        rows.insert(2, ("validation, best", max(validations, key=lambda row: row["accuracy"])))
    rows = [(label, row) for label, row in rows if row]
    if rows:
        heads = ["split", "epoch", "accuracy", "loss", "images per second", "time so far"]
        page.table(heads, [[label, *_numbers(row)] for label, row in rows])
        page.text("Training: mean of the last epoch, on pictures as they were fed in, while the weights still moved.")
        if reasons := _harder(config):
            page.text(f"Training may look worse than validation here, and that is no fault: {', '.join(reasons)}.")
        try:
            from vitral.draw.curves import training_curves

            page.figure(training_curves({name: metrics}), "Accuracy and loss over the epochs")
        except UsageError as error:
            page.note(str(error))
    if (folder / "test.json").is_file():
        _test(page, optional_object(page, folder / "test.json", ""))


def _last_epoch(metrics: Metrics) -> dict[str, Any]:
    """The last training line, with accuracy and loss averaged as the curves show them: one line is a few batches."""
    from vitral.draw.curves import read_curve

    means = {key: float(values[-1]) for key in ("accuracy", "loss") if len(values := read_curve(metrics, "train", key)[1])}
    return {**last(metrics, "train"), **means}


def _harder(config: dict[str, Any]) -> list[str]:
    """Why the figures of training and validation are not of the same thing in this run."""
    try:
        run = _run_of(config)
    except (VitralError, TypeError):
        return []  # said further down the page
    data, train, model = run.data, run.train, run.model
    # Unless told otherwise, `strong` alone mixes; the policies themselves are out of reach without torch.
    mixing = sum(own if own is not None else float(data.augment == "strong") for own in (data.mixup, data.cutmix))
    dropped = train.token_drop * train.token_drop_until
    found = {
        f"the pictures are augmented ({data.augment})": data.augment != "none",
        f"pictures are mixed with each other{_until(1 - train.mixing_off)}": mixing > 0 and train.mixing_off < 1,
        f"labels are smoothed ({train.label_smoothing:g})": train.label_smoothing > 0,
        f"{100 * train.token_drop:.0f} % of the patches are left out{_until(train.token_drop_until)}": dropped > 0,
        "dropout is on": max(model.dropout, model.attention_dropout, model.drop_path) > 0,
        "part of the loss is the teacher's": train.teacher is not None and train.teacher_weight > 0,
        "the loss is weighed by class": data.class_weights,
        "validation is of averaged weights": train.ema is not None,
    }
    return [reason for reason, applies in found.items() if applies]


def _until(share: float) -> str:
    return f" for the first {100 * share:.0f} % of the run" if share < 1 else ""


def _test(page: Page, test: dict[str, Any]) -> None:
    """The test split in detail: what is confused with what, and whether the model knows how sure it may be."""
    from vitral.draw.charts import reliability_figure
    from vitral.draw.matrices import confusion_figure

    page.subsection("The test split")
    facts = {
        "pictures": test.get("pictures"),
        "right at first guess": percent(test.get("top1")),
        "right within five guesses": percent(test.get("top5")),
    }
    page.facts(facts)
    names = list(map(str, test.get("per_class") or {}))
    try:
        counts = np.asarray(test["confusion"])
        page.figure(
            confusion_figure(counts, names if len(names) == len(counts) else ()),
            "Confusion matrix: true classes down, predicted ones across",
        )
        bins = test["calibration"]
        figure = reliability_figure(
            np.asarray(bins["confidence"]), np.asarray(bins["accuracy"]), np.asarray(bins["count"]), error=bins["error"]
        )
        page.figure(figure, "Calibration: is it right as often as it is sure?")
    except (KeyError, TypeError, ValueError, VitralError) as error:
        page.note(f"test.json could not be drawn ({type(error).__name__}: {error})")


def _origin(page: Page, stored: Any) -> None:
    page.section("Where the model comes from")
    try:
        origin = Origin.from_dict(stored if isinstance(stored, dict) else {})
    except (TypeError, KeyError, AttributeError) as error:
        page.note(f"the origin in config.json could not be read ({error})")
        return
    if not stored:
        page.note("config.json records no origin: the values below are Vitral's defaults")
    assumptions = origin.assumptions()
    if assumptions:
        page.note(f"{len(assumptions)} of the facts below are assumed, not known; `vitral.load` takes the true ones as arguments")
    rows = [
        [name.replace("_", " "), show(fact.value) or "unnamed", Cell(fact.mark, fact.mark), fact.note]
        for name, fact in vars(origin).items()
        if isinstance(fact, Fact)
    ]
    page.table(["", "value", "", "why"], rows)
    if origin.changes:
        page.subsection("Changed on the way in")
        page.listing([str(change) for change in origin.changes])
    if origin.parity:
        worst = max(origin.parity.items(), key=lambda pair: pair[1])
        page.text(
            f"Proved against its source in {len(origin.parity)} places; the largest relative difference is {worst[1]:.2g} ({worst[0]})."
        )


def _settings(page: Page, config: dict[str, Any]) -> None:
    page.section("Settings")
    for part in ("model", "data", "train"):
        if isinstance(config.get(part), dict):
            page.facts(config[part], part)
        else:
            page.note(f"config.json says nothing about the {part}")


def _again(page: Page, config: dict[str, Any]) -> None:
    page.section("Train it again")
    try:
        run = _run_of(config)
    except (VitralError, TypeError) as error:
        page.note(f"no command: these settings do not fit this version ({error})")
        return
    page.code(training_command(run))


def _run_of(config: dict[str, Any]) -> RunConfig:
    return from_dict(RunConfig, {key: value for key, value in config.items() if key != "origin"}, "config.json")


def _numbers(row: dict[str, Any]) -> list[str]:
    loss = row.get("loss")
    return [
        show(row.get("epoch")),
        percent(row.get("accuracy")),
        f"{loss:.4f}" if isinstance(loss, int | float) else "–",
        show(row.get("images_per_second")),
        duration(row.get("seconds")),
    ]
