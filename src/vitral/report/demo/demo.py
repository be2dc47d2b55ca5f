"""The first thing a new user sees: train on digits, look inside, put a photograph through a larger ViT, write the report."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vitral.base import layout
from vitral.base.errors import UsageError, VitralError
from vitral.base.files import write_atomic
from vitral.base.picture import Picture
from vitral.data.images.preprocess import open_picture
from vitral.data.splits.open import open_data
from vitral.draw.curves import training_curves
from vitral.draw.overlay import enlarge
from vitral.draw.provenance import render, save_figure
from vitral.draw.sheet import BRIGHTEST, COLOURS_END
from vitral.draw.tiles import picture_sheet
from vitral.look.attention import attention
from vitral.look.describe import about_model
from vitral.look.figures import figure_set
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.presets.runs import change
from vitral.presets.runs import run as named_run
from vitral.report.demo.photograph import AUTO, PHOTOGRAPH, Sheet, Weights, draw_photograph, find_weights
from vitral.report.run import write_run_report
from vitral.run.folder import RunFolder
from vitral.train.fit import Run, fit

_NAME = "demo"
PICTURE = "digit.png"
_SHOWN = ("2", "4", "5", "7", "8")
"""One test picture of each of these classes is drawn."""


@dataclasses.dataclass(frozen=True)
class _Demo:
    run: Run
    figures: list[Path]
    report: Path
    weights: Weights
    photograph: Sheet | None
    """None: no weights were to be had."""


def demo(
    out: str | Path = layout.RUNS / _NAME,
    seed: int = 0,
    epochs: float | None = None,
    quiet: bool = False,
    command: str = "vitral demo",
    weights: str = AUTO,
    device: str = "auto",
) -> _Demo:
    """Train the digits preset into `out` (replacing an earlier demo), draw what is inside, write report.html.

    weights: of a larger ViT, which then looks at a photograph: anything that `vitral.load` takes, `auto` or `none`.
    """
    out = Path(out)
    photographer = find_weights(weights)  # before the minute of training: a wrong name is told at once
    config = change(named_run("digits"), name=_NAME, seed=seed, device=device, **({} if epochs is None else {"epochs": epochs}))
    _make_room(out)
    run = fit(config, out=out, quiet=quiet, run="digits", command=command)
    pictures = _shown_pictures(run)
    figures = out / layout.FIGURES
    write_atomic(out / PICTURE, render(pictures[0].original, "png"))  # something to try the other verbs on
    write_atomic(out / PHOTOGRAPH.name, PHOTOGRAPH.read_bytes())
    written = _curves(run, figures, command) + _attention(run.model, pictures, figures, command)
    written += figure_set(
        run.model, pictures[:1], figures, formats=("png",), command=command, quiet=quiet
    )  # drawing SVG takes as long again
    photograph = draw_photograph(photographer.model, figures, command) if photographer.model is not None else None
    return _Demo(run, written, write_run_report(out), photographer, photograph)


def _make_room(out: Path) -> None:
    """Empty the folder of an earlier demo, which takes a minute to repeat; any other run, or folder, is somebody's work."""
    if not out.exists():
        return
    if not out.is_dir() or (any(out.iterdir()) and not _is_demo(out)):
        raise UsageError(f"{out} exists and is not an earlier demo", "name another folder with --out")
    for entry in out.iterdir():  # the folder itself stays: it may be the one we are in
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def _is_demo(out: Path) -> bool:
    try:
        config = RunFolder.open(out).settled
    except VitralError:
        return False
    named = config.name == _NAME or (out / PICTURE).is_file()  # earlier versions named it after its folder
    return named and config.data.name == "digits"


def _shown_pictures(run: Run) -> list[Picture]:
    """A few pictures of the test split, which the run has opened: they are looked at, nothing is chosen by them."""
    data = open_data(named_run("digits").data)
    test = data.test()
    first = {name: next(i for i, label in enumerate(test.labels) if data.class_names[label] == name) for name in _SHOWN}
    return [dataclasses.replace(open_picture(test.picture(index), run.model), source=f"digit-{name}.png") for name, index in first.items()]


def _curves(run: Run, folder: Path, command: str) -> list[Path]:
    figure = training_curves({"digits": run.metrics}, title="Training a small ViT on digits")
    numbers = {
        f"{split}_{key}": [row[key] for row in run.metrics if row["split"] == split]
        for split in ("train", "validation")
        for key in ("epoch", "accuracy", "loss")
    }
    return save_figure(figure, folder / "curves", numbers, about_model(run.model, command), "Accuracy and loss over the epochs.")


def _attention(model: Classifier, pictures: Sequence[Picture], folder: Path, command: str) -> list[Path]:
    """A row for each digit: the digit, then where the class token looks in each block, heads averaged."""
    tape = watch(model, list(pictures))
    depth = model.config.depth
    heats = [[attention(tape, item, block=block) for block in range(depth)] for item in range(len(pictures))]
    limits = (0.0, float(np.percentile([heat.grid for row in heats for heat in row], BRIGHTEST)))  # one scale for the whole wall
    tiles, scales = [], []
    for picture, row in zip(pictures, heats, strict=True):
        tiles += [enlarge(picture.original), *(heat.overlay(mode="patches", limits=limits) for heat in row)]
        scales += [None, *(heat.scale(limits=limits, cut=True) for heat in row)]
    predicted = [model.origin.class_name(int(index)) for index in tape.logits.argmax(dim=1)]
    figure = picture_sheet(
        tiles,
        ["picture", *(f"block {block}" for block in range(depth))],
        columns=depth + 1,
        row_labels=[f"seen as {name}" for name in predicted],
        title="Where the class token looks, block by block",
        width=1.3,
        scales=scales,
        note=COLOURS_END,
    )
    numbers = {"attention": [[heat.grid for heat in row] for row in heats]}
    caption = "Attention of the class token on the patches, mean over the heads; one row per test picture, one column per block."
    return save_figure(figure, folder / "class-token-attention", numbers, about_model(model, command), caption)
