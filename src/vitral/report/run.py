"""A run folder → one page: what was trained, how well it does, its figures, and how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from vitral.base import layout
from vitral.base.errors import ConfigError, UsageError, VitralError
from vitral.base.origin import Fact, Origin
from vitral.base.text import NOTHING, duration
from vitral.config import RunConfig, to_dict
from vitral.data.images.augment import policy
from vitral.data.images.preprocess import Preprocess
from vitral.data.splits.open import open_split
from vitral.draw.curves import read_curve, training_curves
from vitral.look.verdicts import read_verdicts
from vitral.report import inline
from vitral.report.page import Section, environment, mapping, number, part, percent, read_object, section, show, write_page
from vitral.report.test_results import ScoredImages, results_sections, split_opener
from vitral.run.answers import Answers
from vitral.run.folder import RunFolder
from vitral.run.journal import read_metrics
from vitral.run.made_here import made_here

_Metrics = list[dict[str, Any]]
_SETTINGS = ("model", "data", "train", "pretrain")
_SEALED = "Training pictures that no setting was chosen on and this run has not learnt from; scored with the same weights as test."
_NO_COMMAND = "no command trains this run again: a program began it with a model or data of its own, or asked.json is missing"
_RANK = "The rank counts directions beside the one all embeddings share; of an untrained model they are noise: a first fall is no collapse"


def write_run_report(run_folder: str | Path, out: str | Path | None = None, maps: bool = True) -> Path:
    """The report of a run, at `out` or in the run folder as report.html; its path. `maps`: over the pictures that it lists."""
    run = RunFolder.open(run_folder)
    notes: list[str] = []
    try:
        config, origin, command, reasons = run.settled, run.origin, run.command, _harder(run.settled)
    except (ConfigError, TypeError) as error:
        config = origin = command = None
        reasons = []
        notes.append(f"the settings do not fit this version ({error})")
    if config and ":" in config.data.name and not made_here(run.path):
        notes.append(f"not made on this machine: {config.data.name} was not opened; pictures are the small ones in the run folder")
    name = _title_of(run, config) if config else run.path.name
    metrics = _read_journal(run.path / layout.METRICS, notes)
    machine = read_object(run.path / layout.ENVIRONMENT, notes, "the machine and the versions are not known")
    tests = {split: scores for split in ("test", "sealed") if (scores := read_object(run.path / layout.scores_name(split), notes))}
    figures = run.path / layout.FIGURES
    typed = shlex.join(["vitral", "figures", str(run.path), "--out", str(figures)])
    drawn_by = f"make some with `{typed}`, then write this page again"
    hint = drawn_by if run.has_model else f"they need a model, and {run.path} holds none"
    page = Path(out or run.path / layout.REPORT)
    images = _openable(run, notes) if maps and tests else ScoredImages
    curves = _curves(name, metrics)
    drawn = ("curves",) if any(isinstance(one, inline.Illustration) for one in curves) else ()
    sections = [_results(metrics, curves, reasons), _probe(read_object(run.path / layout.PROBE, []))]
    for split, scores in tests.items():
        first, *others = results_sections(scores, run.path, page, notes, split, images)
        sections += [section(f"The {split} split", _SEALED if split == "sealed" else "", first.parts, level=3), *others]
    settings = {name: to_dict(value) for name in _SETTINGS if (value := getattr(config, name, None))}
    sections += [
        section("How it came to be", part("frames", inline.of_frames(run.path / layout.FILM / layout.FRAMES))),
        section("Figures", part("figures", inline.of_folder(figures, hint, without=drawn))),
        *(_origin(origin) if origin else []),
        section("Settings", *(part("named_values", values, name) for name, values in settings.items())),
        section(
            "Environment",
            environment({key: value for key, value in machine.items() if key not in ("data", "times")}),
            part("named_values", mapping(machine.get("times")), "seconds, from the command to the result"),
            part("named_values", mapping(machine.get("data")), "the data"),
        ),
        section("Train it again", part("code", command) or part("note", _NO_COMMAND)),
    ]
    return write_page(page, name, sections, headline(metrics), notes)


def _results(metrics: _Metrics, curves: list[inline.Illustration | str], reasons: list[str]) -> Section:
    headings, rows = _last_lines(metrics)
    collapse = next((line["collapsed"] for line in metrics if "collapsed" in line), None)
    if not _last(metrics, "validation"):
        why = "No validation pictures: the run learnt from all that it might learn from, so there is no curve of pictures it has not seen."
    else:
        why = f"Training may look worse than validation here, and that is no fault: {', '.join(reasons)}." if reasons else ""
    about_training = "Training: mean of the last epoch, on pictures as they were fed in, while the weights still moved."
    shown = [part("table", rows, headings), about_training, why, part("figures", curves)] if rows else []
    return section("Results", *shown, part("note", f"The embeddings collapsed: {collapse}" if collapse else ""))


def _probe(probe: dict[str, Any]) -> Section:
    if not probe:
        return section("")
    linear, neighbours = probe["linear"], probe["neighbours"]
    return section(
        "What its features are worth",
        f"It learnt without labels. Read off frozen features on {probe['pictures']} validation pictures that it has not seen: "
        f"a linear probe is right on {percent(linear['accuracy'])}, the {neighbours['settings']} nearest neighbours on "
        f"{percent(neighbours['accuracy'])}.",
        level=3,
    )


def _origin(origin: Origin) -> list[Section]:
    count = len(origin.assumptions())
    note = f"{count} of the facts below {'is' if count == 1 else 'are'} assumed, not known; `vitral.load` takes the true ones as arguments"
    facts = [(key, fact) for key, fact in vars(origin).items() if isinstance(fact, Fact)]
    parity = ""
    if origin.parity:
        where, worst = max(origin.parity.items(), key=lambda item: item[1])
        parity = f"Proved against its source in {len(origin.parity)} places; the largest relative difference is {worst:.2g} ({where})."
    return [
        section("Where the model comes from", part("note", note if count else ""), part("facts", facts)),
        section("Changed on the way in", part("items", list(map(str, origin.changes))), level=3),
        section("", parity),
    ]


def _openable(run: RunFolder, notes: list[str]) -> Callable[[Answers, list[str]], ScoredImages]:
    """Images with maps by the run's model. A run from elsewhere names files that are none of its business: they are not opened."""
    if not run.has_model or not made_here(run.path):
        return ScoredImages
    try:
        model = run.model()
    except VitralError as error:
        notes.append(f"the pictures have no maps ({error})")
        return ScoredImages
    if model.config.classes < 2:
        return ScoredImages
    verdicts = read_verdicts(model, run.path / layout.AUDIT)
    if run.settled.data.name != "digits":
        return partial(ScoredImages, model=model, verdicts=verdicts)
    test = open_split(run.settled.data, Preprocess.of(model), "test")  # these digits have no files, and come with scikit-learn
    return partial(ScoredImages, model=model, opener=split_opener(test), verdicts=verdicts)


def _title_of(run: RunFolder, config: RunConfig) -> str:
    """The run's name; where it only has the one of the preset it began as, and learnt from other data, that data's."""
    kind, _, rest = config.data.name.partition(":")
    if run.asked is None or run.asked.run != config.name or not rest:
        return config.name
    return Path(rest).name if kind == "folder" else rest


def _read_journal(path: Path, notes: list[str]) -> _Metrics:
    if not path.is_file():
        notes.append(f"{path.name} is missing: there is nothing to draw curves from. `vitral train` writes it")
    damaged: list[str] = []
    metrics = read_metrics(path, damaged)
    notes += [f"{len(damaged)} line(s) of {path.name} could not be read and were left out"] if damaged else []
    return metrics


def headline(metrics: _Metrics) -> str:
    """`97.8 % right on test after 60 epochs and 41 s`."""
    if test := _last(metrics, "test"):
        text = f"{_score(test)} on test"
        if sealed := _last(metrics, "sealed"):
            text += f", {_score(sealed)} on the sealed pictures"
    elif validation := _last(metrics, "validation"):
        text = f"{_score(validation)} on validation; the test split has not been opened"
    else:
        return "not trained to the end"
    end = metrics[-1]
    return f"{text}, after {show(end.get('epoch'))} epochs and {duration(number(end.get('seconds')))}"


def _score(line: dict[str, Any]) -> str:
    if "effective_rank" in line:  # it learnt without labels
        return f"loss {_few_digits(line.get('loss'))}, effective rank {_few_digits(line['effective_rank'])}"
    mean = line.get("mean_average_precision")
    return f"{percent(line.get('accuracy'))} right" if mean is None else f"mean average precision {percent(mean)}"


def _few_digits(value: Any) -> str:
    return NOTHING if number(value) is None else f"{value:.3g}"


def _last(metrics: _Metrics, split: str) -> dict[str, Any]:
    return next((row for row in reversed(metrics) if row.get("split") == split), {})


def _last_lines(metrics: _Metrics) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: epoch, accuracy, loss, speed and time of each split; a column that nothing fills is left out."""
    validations = [row for row in metrics if row.get("split") == "validation" and number(row.get("accuracy")) is not None]
    rows = {
        "train, last epoch": _last_epoch(metrics),
        "validation": _last(metrics, "validation"),
        "validation, best": max(validations, key=lambda row: row["accuracy"], default={}),
        "sealed": _last(metrics, "sealed"),
        "test": _last(metrics, "test"),
    }
    columns = {
        "epoch": lambda row: show(row.get("epoch")),
        "accuracy": lambda row: percent(row.get("accuracy")),
        "loss": lambda row: NOTHING if (loss := number(row.get("loss"))) is None else f"{loss:.4f}",
        "images per second": lambda row: show(row.get("images_per_second")),
        "time so far": lambda row: duration(number(row.get("seconds"))),
    }
    present = {label: {name: say(row) for name, say in columns.items()} for label, row in rows.items() if row}
    filled = [name for name in columns if any(row[name] != NOTHING for row in present.values())]
    return ["split", *filled], [[label, *(row[name] for name in filled)] for label, row in present.items()]


def _last_epoch(metrics: _Metrics) -> dict[str, Any]:
    """The last training line, with accuracy and loss averaged as the curves show them: one line is a few batches."""
    means = {key: float(values[-1]) for key in ("accuracy", "loss") if len(values := read_curve(metrics, "train", key)[1])}
    return {**_last(metrics, "train"), **means}


def _harder(run: RunConfig) -> list[str]:
    """Why the figures of training and validation are not of the same thing in this run."""
    data, train, model = run.data, run.train, run.model
    mixed = policy(data.augment, mixup=data.mixup, cutmix=data.cutmix)
    dropped = train.token_drop * train.token_drop_until
    reasons = {
        f"the pictures are augmented ({data.augment})": data.augment != "none",
        f"pictures are mixed with each other{_until(1 - train.mixing_off)}": mixed.mixup + mixed.cutmix > 0 and train.mixing_off < 1,
        f"labels are smoothed ({train.label_smoothing:g})": train.label_smoothing > 0,
        f"{percent(train.token_drop, 0)} of the patches are left out{_until(train.token_drop_until)}": dropped > 0,
        "dropout is on": max(model.dropout, model.attention_dropout, model.drop_path) > 0,
        "part of the loss is the teacher's": train.teacher is not None and train.teacher_weight > 0,
        "the loss is weighed by class": data.class_weights,
        "validation is of the averaged weights (EMA)": train.ema is not None,
    }
    return [reason for reason, applies in reasons.items() if applies]


def _until(share: float) -> str:
    return f" for the first {percent(share, 0)} of the run" if share < 1 else ""


def _curves(name: str, metrics: _Metrics) -> list[inline.Illustration | str]:
    try:
        named, collapsed = (any(key in line for line in metrics) for key in ("accuracy", "collapsed"))
        words = f"{'Accuracy' if named else 'Effective rank'} and loss over the epochs"
        return [inline.of_figure(training_curves({name: metrics}), words if named or collapsed else f"{words}. {_RANK}")]
    except UsageError as error:
        return [str(error)]
