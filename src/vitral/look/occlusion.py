"""Occlusion (Zeiler and Fergus, 2014): cover a part of the picture and see what the model loses."""

from __future__ import annotations

import numpy as np
import torch

from vitral.base.errors import UsageError
from vitral.base.progress import track
from vitral.draw.heatmap import Heatmap
from vitral.look.choice import Start, check_item, find_target, unused
from vitral.look.maps import heat
from vitral.look.rerun import alone, run, score, score_unit
from vitral.model.classifier import Classifier
from vitral.model.tape import Tape

BATCH = {"cpu": 8}
"""Squares at once; a CPU gains nothing from more, and whoever waits for a step of it would wait longer."""
USUAL_BATCH = 32
RIVAL_SIDE = 14


def occlusion(
    tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, size: int | None = None, fill: float = 0.0
) -> Heatmap:
    """How much the target's probability falls when a square around each patch is covered; signed. A `start` is noted, not used.

    size: patches per side of the square (default: about a fifth of the grid). fill: its value after preprocessing (0: the mean colour).
    A rival's picture is divided into at most 14 × 14 patches.
    """
    item = check_item(tape, item)
    target = find_target(tape, item, target)
    image = alone(tape, item)
    height, width = image.shape[-2:]
    rows, columns = grid_of(tape.model)
    size = max(1, round(min(rows, columns) / 5)) if size is None else size
    if not 1 <= size <= max(rows, columns):
        raise UsageError(f"size = {size} patches", f"use 1 to {max(rows, columns)}")
    before, after = (size - 1) // 2, size - (size - 1) // 2
    edges_down, edges_across = edges(height, rows), edges(width, columns)
    places = [(row, column) for row in range(rows) for column in range(columns)]
    batch = BATCH.get(image.device.type, USUAL_BATCH)
    drops: list[float] = []
    with torch.no_grad():
        whole = float(score(tape, run(tape, image[None]), target))
        for begin in track(range(0, len(places), batch), "Covering the picture"):
            covered = image.repeat(min(batch, len(places) - begin), 1, 1, 1)
            for index, (row, column) in enumerate(places[begin : begin + batch]):
                top, bottom = edges_down[max(0, row - before)], edges_down[min(rows, row + after)]
                left, right = edges_across[max(0, column - before)], edges_across[min(columns, column + after)]
                covered[index, :, top:bottom, left:right] = fill
            drops += (whole - score(tape, run(tape, covered), target).double()).tolist()
    unit = score_unit(tape)
    note = f"{unit} {whole:.3f} uncovered; squares of {size} × {size} patches"
    grid = np.array(drops).reshape(rows, columns)
    ignored = unused("occlusion", start=start)
    return heat(tape, item, grid, "occlusion", note, ignored, target=target, unit=f"fall of the {unit}", signed=True)


def grid_of(model: Classifier) -> tuple[int, int]:
    """The grid in which a picture is covered: a transformer's own, or at most 14 × 14 for a rival."""
    if model.config.is_transformer:
        return model.config.grid
    height, width = model.config.image_size
    return min(RIVAL_SIDE, height), min(RIVAL_SIDE, width)


def edges(pixels: int, count: int) -> list[int]:
    """Where the patches of a side begin, and where the last one ends."""
    return [round(index * pixels / count) for index in range(count + 1)]
