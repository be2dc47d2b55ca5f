"""Occlusion (Zeiler and Fergus, 2014): cover a part of the picture and see what the model loses."""

from __future__ import annotations

import numpy as np
import torch

from vitral.base.errors import UsageError
from vitral.base.numbers import to_double
from vitral.base.progress import track
from vitral.draw.heatmap import Heatmap
from vitral.look.choice import Start, check_item, find_target, unused_note
from vitral.look.maps import heat, patch_edges
from vitral.look.rerun import run, run_fast, score, score_unit, single_image
from vitral.model.classifier import Classifier
from vitral.model.tape import Tape

_BATCH = {"cpu": 8}
"""Squares at once; a CPU gains nothing from more, and whoever waits for a step of it would wait longer."""
_USUAL_BATCH = 32
_RIVAL_SIDE = 14
_MANY = 64
"""Squares beyond which every second one is covered and the others lie between them (docs/LOG.md has what such maps have in common with
exact ones, and what fewer squares would)."""
_REACH = 2.5
"""Patches over which neighbouring squares resemble each other."""


def occlusion(
    tape: Tape,
    item: int = 0,
    target: int | str | None = None,
    start: Start = "class",
    *,
    size: int | None = None,
    fill: float = 0.0,
    exact: bool = False,
) -> Heatmap:
    """How much the target's probability falls when a square around each patch is covered; signed. A `start` is noted, not used.

    size: patches per side of the square (default: about a fifth of the grid). fill: its value after preprocessing (0: the mean colour).
    exact: cover every square, in the model's own precision; else, where they are many and overlap, every second one, as the squares of one
    colour on a chessboard, and in bf16 on a CPU that is quicker with it.
    A rival's picture is divided into at most 14 × 14 patches.
    """
    item = check_item(tape, item)
    target = find_target(tape, item, target)
    image = single_image(tape, item)
    height, width = image.shape[-2:]
    rows, columns = grid_of(tape.model)
    size = max(1, round(min(rows, columns) / 5)) if size is None else size
    if not 1 <= size <= max(rows, columns):
        raise UsageError(f"size = {size} patches", f"use 1 to {max(rows, columns)}")
    before, after = (size - 1) // 2, size - (size - 1) // 2
    edges_down, edges_across = patch_edges(height, rows), patch_edges(width, columns)
    squares = [(row, column) for row in range(rows) for column in range(columns)]
    between = not exact and size > 1 and len(squares) > _MANY
    if between:
        squares = [(row, column) for row, column in squares if (row + column) % 2 == 0]
    batch = _BATCH.get(image.device.type, _USUAL_BATCH)
    logits = run if exact else run_fast
    drops: list[float] = []
    with torch.no_grad():
        whole = float(score(tape, logits(tape, image[None]), target))
        for begin in track(range(0, len(squares), batch), "Covering the picture"):
            covered = image.repeat(min(batch, len(squares) - begin), 1, 1, 1)
            for index, (row, column) in enumerate(squares[begin : begin + batch]):
                top, bottom = edges_down[max(0, row - before)], edges_down[min(rows, row + after)]
                left, right = edges_across[max(0, column - before)], edges_across[min(columns, column + after)]
                covered[index, :, top:bottom, left:right] = fill
            drops += (whole - to_double(score(tape, logits(tape, covered), target))).tolist()
    unit = score_unit(tape)
    note = f"{unit} {whole:.3f} uncovered; squares of {size} × {size} patches{'; every second one, the others between them' * between}"
    grid = np.full((rows, columns), np.nan)
    grid[tuple(np.transpose(squares))] = drops
    if between:
        grid = _fill_between(grid)
    ignored = unused_note("occlusion", start=start)
    return heat(tape, item, grid, "occlusion", note, ignored, target=target, unit=f"fall of the {unit}", signed=True)


def _fill_between(grid: np.ndarray) -> np.ndarray:
    """The missing (NaN) numbers from the others by kriging: squares that are near, and so overlap, lose nearly the same.

    Matérn 3/2 over `_REACH` patches. The mean of the four neighbours is worse: correlations with three exact maps of 0.97, 0.94 and 0.98
    instead of 0.98, 0.95 and 0.99 (docs/LOG.md).
    """
    points = np.argwhere(np.ones(grid.shape))  # (N, 2)
    far = np.sqrt(3) / _REACH * np.linalg.norm(points[:, None] - points, axis=-1)
    covariance = (1 + far) * np.exp(-far)  # (N, N)
    measured = ~np.isnan(grid.ravel())
    values = grid.ravel()[measured]
    among = covariance[np.ix_(measured, measured)] + 0.01 * np.eye(measured.sum())
    ones, parts = np.linalg.solve(among, np.stack([np.ones(len(values)), values], axis=1)).T
    mean = parts.sum() / ones.sum()
    return np.where(measured, grid.ravel(), mean + covariance[:, measured] @ (parts - mean * ones)).reshape(grid.shape)


def grid_of(model: Classifier) -> tuple[int, int]:
    """The grid in which a picture is covered: a transformer's own, or at most 14 × 14 for a rival."""
    if model.config.is_transformer:
        return model.config.grid
    height, width = model.config.image_size
    return min(_RIVAL_SIDE, height), min(_RIVAL_SIDE, width)
