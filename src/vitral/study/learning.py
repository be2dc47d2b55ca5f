"""Pictures of learning without labels, into a run's figures: what patches look alike, which pictures are neighbours, and since when.

learning-colours.png      patch features of validation pictures as colours, one basis for all; a row for each snapshot
learning-similarity.png   patches that are like the one in the middle
learning-neighbours.png   pictures and those whose features are nearest
learning-rebuilt.png      mae: what is shown, what is made of it, what it was (written when the run ends: the decoder is not kept)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from vitral.base.errors import DataError
from vitral.base.layout import FIGURES, NEIGHBOURS
from vitral.base.numbers import to_numpy
from vitral.base.progress import say
from vitral.base.text import percent
from vitral.data.images.preprocess import Preprocess
from vitral.data.loader import Loader
from vitral.data.splits.open import open_data, open_source
from vitral.data.splits.split import Split
from vitral.draw.provenance import save_figure
from vitral.draw.tiles import picture_sheet
from vitral.look.joint import JointColours, enlarge, joint_colours, similar_patches
from vitral.model.classifier import Classifier
from vitral.run.folder import RunFolder
from vitral.study.embed import nearest
from vitral.study.probe import probe_finished, probe_run
from vitral.train.fit import Run
from vitral.weights.checkpoint import load_checkpoint

Sheet = tuple[Any, dict[str, np.ndarray], str]
"""A figure, its numbers and its caption."""
_SHOWN, _NEAR, _BANK = 8, 5, 512
"""Pictures on a sheet, neighbours of each, and pictures that they are looked for among."""
HIDDEN = (134, 170, 208)
"""Red, green and blue of a patch that was not shown."""


def finish(run: Run, probe: bool, test: bool, device: str, quiet: bool) -> tuple[dict[str, Any] | None, list[str]]:
    """Draw what a run without labels learnt and probe its features: (scores, lines of text); None where the data has no labels.

    `test`: also score the probe on the test images, which are opened here; the answers are written into the run's folder.
    """
    folder = RunFolder(run.path)
    if run.rebuilt is not None:
        draw_rebuilt(folder, run.rebuilt)
    _draw_learning(run.path)
    if not probe:
        return None, []
    try:
        result = probe_run(run.path, device=device, quiet=quiet)
    except DataError as error:
        if not quiet:
            say(f"note: not probed: {error}")
        return None, []
    scores, lines = dict(result.values), [str(result.table)]
    if test:
        probe_finished(folder, test=True, neighbours=True, device=device)
        linear, neighbours = (folder.answers(split).right.mean() for split in ("test", NEIGHBOURS))
        scores |= {"test": float(linear), "test_neighbours": float(neighbours)}
        images = f"{len(folder.answers('test').labels):,} pictures"
        lines.append(f"test: accuracy {percent(linear)} with the linear probe, {percent(neighbours)} by neighbours, {images}")
    return scores, lines


def _draw_learning(path: str | Path) -> list[Path]:
    """The sheets of a finished pre-training; labels are not read."""
    folder = RunFolder.open(path)
    config, final = folder.settled.data, folder.model().eval()
    data = open_data(config, preprocess=Preprocess.of(final), source=open_source(config, labels=False))
    split = data.validation.balanced_subset(min(_BANK, len(data.validation)), config.split_seed)
    images = torch.cat([batch.images for batch in Loader(split, batch_size=min(128, len(split))).epoch(0)])
    every = [_picture(to_numpy(pixels)) for pixels in split.pixels()]
    seen, command = every[:_SHOWN], folder.command
    last = max((line["step"] for line in folder.metrics), default=0)
    before = [(step, snapshot) for step, snapshot in folder.snapshots() if step < last]  # that of the last step is the model itself
    models = [(f"step {step:,}", load_checkpoint(snapshot).eval()) for step, snapshot in before] + [("end", final)]
    made = []
    for name, (figure, numbers, caption) in {
        "learning-colours": _colours(models, images[:_SHOWN], seen),
        "learning-similarity": _similarity(final, images[:_SHOWN], seen),
        "learning-neighbours": _neighbours(final, split, every),
    }.items():
        made += save_figure(figure, folder.path / FIGURES / name, numbers, {"command": command, "run": str(folder.path)}, caption, ("png",))
    return made


def draw_rebuilt(folder: RunFolder, arrays: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """Of a masked autoencoder: what was shown (NaN: hidden), what was made of it, what it was; pixels (B, H, W, C) in [0, 1]."""
    pictures = [enlarge(_veiled(values)) for part in arrays for values in part]
    settings = folder.settled.pretrain
    shows_scale = settings is None or settings.normalised_pixels
    note = "blue: hidden" + "; of each hidden patch the mean and the spread are given, its pattern is rebuilt" * shows_scale
    figure = picture_sheet(pictures, columns=len(arrays[0]), row_labels=["shown", "rebuilt", "picture"], width=1.0, note=note)
    caption = "Hidden patches rebuilt: what was shown, what was made of it, the picture."
    caption += " Means and spreads of hidden patches are given." * shows_scale
    names = ("shown", "rebuilt", "picture")
    about = {"command": folder.command, "run": str(folder.path)}
    save_figure(figure, folder.path / FIGURES / "learning-rebuilt", dict(zip(names, arrays, strict=True)), about, caption, ("png",))


def _colours(models: list[tuple[str, Classifier]], images: torch.Tensor, seen: list[Image.Image]) -> Sheet:
    rows: list[JointColours] = []
    for _, model in reversed(models):  # from the end, which has its own directions
        rows.insert(0, joint_colours(model, images, rows[0] if rows else None))
    pictures = [*seen, *(tile for row in rows for tile in row.images())]
    labels = ["pictures", *(name for name, _ in models)]
    figure = picture_sheet(pictures, columns=len(seen), row_labels=labels, width=1.0)
    share = percent(rows[-1].explained.sum())
    caption = f"Patches as colours, one basis for all pictures of a row: like colours are like features ({share} of their variance)."
    caption += " Rows are turned to agree with the one below: a colour that changes is a feature that changes." * (len(rows) > 1)
    return figure, {"colours": np.stack([row.colours for row in rows])}, caption


def _similarity(model: Classifier, images: torch.Tensor, seen: list[Image.Image]) -> Sheet:
    maps = similar_patches(model, images)
    tiles = [enlarge((np.clip(values, 0, 1) * 255).round().astype(np.uint8)) for values in maps]
    figure = picture_sheet([*seen, *tiles], columns=len(seen), row_labels=["pictures", "likeness"], width=1.0)
    return figure, {"cosine": maps}, "How like each patch is to the one in the middle (cosine; black 0, white 1)."


def _neighbours(model: Classifier, split: Split, every: list[Image.Image]) -> Sheet:
    queries = min(_SHOWN, len(every) - 1)
    matches = nearest(model, split.picture, range(queries), range(len(every)), min(_NEAR, len(every) - 1))
    near = np.array([[number for number, _ in matches[query]] for query in range(queries)])
    pictures = [every[number] for query in range(queries) for number in (query, *near[query])]
    captions = ["picture", *(f"{rank}." for rank in range(1, near.shape[1] + 1))] + [""] * (len(pictures) - near.shape[1] - 1)
    figure = picture_sheet(pictures, captions, columns=near.shape[1] + 1, width=0.9)
    return figure, {"neighbours": near}, f"Validation pictures and their nearest among {len(every):,}, by the cosine of pooled features."


def _veiled(values: np.ndarray) -> np.ndarray:
    """(H, W, C) in [0, 1] → uint8 (H, W, 3); where nothing is known, a colour that no grey picture has: black would be a part of it."""
    colour = values if values.shape[-1] == 3 else values[..., :1].repeat(3, axis=-1)
    rgb = np.where(np.isnan(colour), HIDDEN, 255 * colour)
    return rgb.clip(0, 255).round().astype(np.uint8)


def _picture(pixels: np.ndarray) -> Image.Image:
    """uint8 (C, H, W) to look at."""
    return enlarge(pixels.transpose(1, 2, 0).squeeze() if pixels.shape[0] in (1, 3) else pixels[0])
