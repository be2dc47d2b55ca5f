"""How a model came to be: the same measurements of every snapshot of a run, as a film, a sheet and numbers."""

from __future__ import annotations

import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitral.base import layout
from vitral.base.errors import UsageError, one_of
from vitral.base.files import replacing_folder, write_atomic
from vitral.base.picture import Picture
from vitral.base.progress import say, track
from vitral.base.text import counted
from vitral.data.images.preprocess import Preprocess, open_picture
from vitral.data.splits.open import open_data, open_source
from vitral.draw.film import FORMATS, Film, animate, film_frame, film_sheet
from vitral.draw.provenance import save_figure
from vitral.look.attention import attention
from vitral.look.describe import about_model, about_picture, seen
from vitral.look.distance import distance
from vitral.look.filters import filters
from vitral.look.lens import depth_names, lens
from vitral.look.relevance import relevance
from vitral.look.similarity import POSITIONED, position_similarity
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.model.tape import ATTENTION, Tape
from vitral.run.folder import RunFolder
from vitral.weights.checkpoint import load_checkpoint

PICTURES = 4
_FILTERS = 16
_SHEET = "sheet"


@dataclass(frozen=True)
class FilmFiles:
    folder: Path
    files: tuple[Path, ...]
    steps: tuple[int, ...]
    parts: tuple[str, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "files": [path.as_posix() for path in self.files],
            "steps": list(self.steps),
            "parts": list(self.parts),
            "notes": list(self.notes),
        }


def film(
    run_folder: str | Path,
    pictures: Sequence[Any] = (),
    out: str | Path | None = None,
    *,
    count: int = PICTURES,
    seconds: float = 0.5,
    formats: Sequence[str] = FORMATS,
    command: str = "",
) -> FilmFiles:
    """The film of a run into `out` (default: RUN/film), which it replaces; `pictures`: default `count` of the run's validation split."""
    if unknown := next((ending for ending in formats if ending not in FORMATS), None):
        raise one_of("film format", unknown, FORMATS)
    run = RunFolder.open(run_folder)
    snapshots = moments(run)
    last = load_checkpoint(snapshots[-1][1])
    opened = [open_picture(picture, last) for picture in pictures] or _of_run(run, last, count)
    reel = record(run, snapshots, opened, last)
    frames = [film_frame(reel, index) for index in track(range(len(reel.steps)), "Drawing frames")]
    folder = Path(out) if out is not None else run.path / layout.FILM
    notes, files = list(reel.notes), []
    with replacing_folder(folder) as new:
        for ending in formats:
            moving = animate(frames, ending, seconds)
            if moving is None:
                notes.append("no MP4: ffmpeg is not installed")
                continue
            files.append(write_atomic(new / f"{layout.FILM}.{ending}", moving))
        for step, frame in zip(reel.steps, frames, strict=True):
            content = io.BytesIO()
            frame.save(content, "WEBP", quality=80)
            write_atomic(new / layout.FRAMES / f"{layout.snapshot_name(step)}.webp", content.getvalue())
        about = about_model(last, command or shlex.join(["vitral", "film", str(run.path)]))
        beside = {**about, "pictures": [about_picture(picture) for picture in opened], "steps": list(reel.steps), "notes": notes}
        title = f"{reel.name}: {len(reel.steps)} moments of its training"
        sheet = film_sheet(reel, title)
        files += save_figure(sheet, new / _SHEET, {"steps": np.array(reel.steps), **reel.parts}, beside, title, ("png",))
    for note in notes:
        say(f"note: {note}")
    return FilmFiles(folder, tuple(folder / path.name for path in files), tuple(reel.steps), tuple(reel.parts), tuple(notes))


def moments(run: RunFolder) -> list[tuple[int, Path]]:
    """The run's snapshots in the order of training, and its final model where that is a later step."""
    snapshots = run.snapshots()
    if run.has_model and (lines := run.metrics):
        end = max(int(line.get("step", 0)) for line in lines)
        if snapshots and end > snapshots[-1][0]:
            snapshots.append((end, run.path))
    if len(snapshots) < 2:
        raise UsageError(
            f"{run.path} kept {counted(len(snapshots), 'snapshot') if snapshots else 'no snapshots'}, and a film needs two",
            f"train it again with some: {shlex.join(['vitral', 'train', str(run.path)])} --snapshots 24",
        )
    return snapshots


def _of_run(run: RunFolder, model: Classifier, count: int) -> list[Picture]:
    """Pictures of the run's validation split, of different classes; of the training split where nothing was set aside."""
    if count < 1:
        raise UsageError(f"a film of {count} pictures", "use 1 or more")
    config = run.settled.data
    source = open_source(config, labels=run.settled.pretrain is None)  # a pre-training's folder need not have any
    data = open_data(config, preprocess=Preprocess.of(model), source=source)
    split = data.validation if len(data.validation) else data.train
    some = split.balanced_subset(min(count, len(split)), seed=0)
    return [open_picture(some.picture(index), model, some.where(index)) for index in range(len(some))]


def record(run: RunFolder, snapshots: Sequence[tuple[int, Path]], pictures: Sequence[Picture], last: Classifier) -> Film:
    """Every part that the model has, of every snapshot."""
    config = last.config
    if not config.is_transformer:
        raise UsageError(f"a film shows attention and positions, and a {config.family} has none", "film the run of a ViT")
    targets = watch(last, list(pictures), keep=["logits"]).logits.argmax(dim=1).tolist() if config.classes else []
    notes = [] if config.classes else ["no lens and no class maps: this model has no classes"]
    if config.positions not in POSITIONED:
        notes.append(f"no position similarity: with positions = {config.positions} there are no vectors to compare")
    parts: dict[str, list[np.ndarray]] = {}
    for _, folder in track(snapshots, "Watching snapshots"):
        model = load_checkpoint(folder)
        for name, values in measure(model, pictures, targets).items():
            parts.setdefault(name, []).append(values)
    stacked = {name: np.stack(values) for name, values in parts.items()}
    stacked["filters"] = steady(stacked["filters"])
    curve, label = _curve(run.metrics)
    probe = distance(watch(last, list(pictures[:1])))
    return Film(
        [step for step, _ in snapshots],
        stacked,
        [seen(picture) for picture in pictures],
        [last.origin.class_name(target) for target in targets],
        probe.reference,
        curve,
        label,
        run.settled.name,
        notes,
    )


def measure(model: Classifier, pictures: Sequence[Picture], targets: Sequence[int]) -> dict[str, np.ndarray]:
    """One snapshot, with the shapes of `Film` but for the frames; without targets no lens and no class maps."""
    depth = model.config.depth
    keep = [ATTENTION, *(depth_names(model) if targets else [])]
    parts: dict[str, list[Any]] = {"attention": [], "distance": [], "lens": [], "classes": []}
    for index, picture in enumerate(pictures):  # one at a time: the attention of a large model takes much memory
        tape: Tape = watch(model, [picture], keep=keep, gradients=bool(targets))
        with torch.no_grad():
            parts["attention"].append([attention(tape, block=block).grid for block in range(depth)])
            parts["distance"].append(distance(tape).values)
        if targets:
            parts["lens"].append(lens(tape, target=targets[index]).probabilities[:, targets[index]])
            parts["classes"].append(relevance(tape, target=targets[index]).grid)
    out = {name: np.array(values) for name, values in parts.items() if values}
    out["distance"] = out["distance"].mean(axis=0)
    out["filters"] = filters(model, count=_FILTERS).shown
    if model.config.positions in POSITIONED:
        out["positions"] = position_similarity(model).values
    return {name: values.astype(np.float32) for name, values in out.items()}


def steady(tiles: np.ndarray) -> np.ndarray:
    """Filters (F, n, …) that do not jump from frame to frame: a component's place and sign mean little, so each frame takes the order and
    the signs in which its components resemble the next frame's most; the last frame stays as it is."""
    from scipy.optimize import linear_sum_assignment

    out = tiles.copy()
    for index in range(len(tiles) - 2, -1, -1):
        here, after = (part.reshape(len(part), -1).astype(np.float64) for part in (out[index], out[index + 1]))
        similarity = after @ here.T / np.maximum(np.linalg.norm(after, axis=1)[:, None] * np.linalg.norm(here, axis=1), 1e-30)
        rows, columns = linear_sum_assignment(-np.abs(similarity))
        signs = np.where(similarity[rows, columns] < 0, -1.0, 1.0).reshape(-1, *[1] * (tiles.ndim - 2))
        out[index] = (out[index][columns] * signs).astype(tiles.dtype)
    return out


def _curve(metrics: Sequence[dict[str, Any]]) -> tuple[tuple[np.ndarray, np.ndarray] | None, str]:
    """What there is of the journal: validation accuracy, else the training loss, else the validation's."""
    kinds = (("validation", "accuracy", "validation %", 100.0), ("train", "loss", "loss", 1.0), ("validation", "loss", "loss", 1.0))
    for split, key, label, scale in kinds:
        rows = [
            (line["step"], scale * line[key]) for line in metrics if line.get("split") == split and isinstance(line.get(key), int | float)
        ]
        if len(rows) > 1:
            steps, values = zip(*rows, strict=True)
            return (np.array(steps), np.array(values)), label
    return None, ""
