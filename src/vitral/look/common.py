"""What the methods share: which picture, which class, which row, and the way back to the original picture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from vitral.base.errors import UsageError, one_of
from vitral.draw.heatmap import Heatmap
from vitral.look.watch import watch
from vitral.model.classifier import Classifier, evaluating
from vitral.model.tape import Edit, Tape

Start = str | int | tuple[int, int]
STARTS = ("class", "distillation", "mean")
OUTLYING = 8.0
"""Deviations (scaled to a normal distribution) above the median."""
LARGER = 1.5
"""Times the median."""


def model_of(model: Classifier | Tape) -> Classifier:
    """For methods that look at weights alone: they take a model or a tape of it."""
    return model.model if isinstance(model, Tape) else getattr(model, "_orig_mod", model)


def is_transformer(model: Classifier | Tape) -> bool:
    return model.config.family in ("vit", "hybrid")


def need_transformer(tape: Tape, what: str) -> None:
    if not is_transformer(tape):
        raise UsageError(
            f"{what} needs attention, and a {tape.config.family} has none", "use gradcam, integrated_gradients or occlusion for this model"
        )


def check_item(tape: Tape, item: int) -> int:
    count = tape.logits.shape[0]
    if not -count <= item < count:
        raise UsageError(f"picture {item} does not exist", f"this tape has pictures 0 to {count - 1}")
    return item % count


def check_index(what: str, index: int, count: int) -> int:
    """A block or head by number, counted from the end when negative."""
    if not isinstance(index, int | np.integer) or isinstance(index, bool) or not -count <= index < count:
        raise UsageError(f"{what} {index} does not exist", f"this model has {what}s 0 to {count - 1}")
    return int(index) % count


def find_target(tape: Tape, item: int, target: int | str | None) -> int:
    """The class that a map explains: by number, by name, or the predicted one."""
    if not tape.config.classes:
        raise UsageError("this model has no head, so there is no class to explain", "use attention, rollout, similarity or norms")
    count = tape.logits.shape[1]
    if target is None:
        return int(tape.logits[item].argmax())
    if isinstance(target, str):
        names = tape.origin.classes.value
        if target in names:
            return names.index(target)
        raise (
            one_of("class", target, names)
            if names
            else UsageError(f"unknown class {target!r}: this model's classes have no names", "use a number")
        )
    if not 0 <= target < count:
        raise UsageError(f"class {target} does not exist", f"this model has classes 0 to {count - 1}")
    return int(target)


def with_values(tape: Tape, item: int, names: Iterable[str], gradients: bool = False) -> tuple[Tape, int]:
    """This tape when it holds whole values under `names` (and their graph), else the picture watched again, edits included."""
    names = list(names)
    item = check_item(tape, item)
    cut = any(name.endswith(".attention.weights") for name in names) and (tape.kept_heads is not None or tape.kept_rows is not None)
    if not cut and all(name in tape for name in names) and (tape.gradients or not gradients):
        return tape, item
    # An edit may treat the pictures of a batch differently: with edits all of them go again, each in its place.
    chosen = slice(None) if tape.edits else slice(item, item + 1)
    return again(tape, chosen, keep=names, gradients=gradients), item if tape.edits else 0


def pictures_of(tape: Tape) -> torch.Tensor:
    """The batch that a tape has seen (B, C, H, W)."""
    if tape.images is None:
        raise UsageError("this tape does not know its pictures, so they cannot be run again", "make it with vitral.watch(model, x)")
    return tape.images


def again(tape: Tape, chosen: slice, **options: Any) -> Tape:
    """Watch pictures of a tape once more, with other things kept."""
    new = watch(tape.model, pictures_of(tape)[chosen], **{"edits": tape.edits, **options})
    new.pictures = None if tape.pictures is None else tape.pictures[chosen]
    return new


def alone(tape: Tape, item: int) -> torch.Tensor:
    """One picture of a tape (C, H, W), to be run again with changes. Refused where an edit would not follow it out of its batch."""
    images = pictures_of(tape)
    image = images[item].detach()
    if tape.edits:
        try:
            with torch.no_grad():
                copies = run(tape, torch.stack([image, image])).float()
            there = tape.logits[item].detach().float()
            follows = torch.allclose(copies, there.expand_as(copies), atol=0.1 if image.element_size() < 4 else 1e-3, rtol=1e-3)
        except IndexError:
            follows = False
        if not follows:
            raise UsageError(
                f"an edit of this tape treats the pictures of a batch differently, so picture {item} cannot be run again with changes",
                "watch it alone, with an edit that does the same to all pictures of a batch",
            )
    return image


def run(tape: Tape, images: torch.Tensor, edits: dict[str, Edit] | None = None) -> torch.Tensor:
    """Logits (B, K) of other pictures through a tape's model, in eval mode, with the tape's edits and more after them."""
    both = dict(tape.edits)
    for name, edit in (edits or {}).items():
        both[name] = _after(both[name], edit) if name in both else edit
    with evaluating(tape.model):
        return tape.model(images, tape=Tape(tape.model, keep=["logits"], edits=both))


def _after(first: Edit, second: Edit) -> Edit:
    return lambda value, name: second(first(value, name), name)


def start_row(tape: Tape, matrix: torch.Tensor, start: Start) -> tuple[torch.Tensor, str]:
    """The row (…, T) of a token-to-token matrix (…, T, T) that a map starts from, and what a reader must know about it.

    class: what the head reads (the class token, or the mean of the patches where it reads those); distillation: that token;
    mean: the mean of the patches; a number: this token; (row, column): this patch.
    """
    index, note = start_index(tape, start)
    if index is None:
        return matrix[..., tape.prefix :, :].mean(dim=-2), note
    return matrix[..., index, :], note


def start_index(tape: Tape, start: Start) -> tuple[int | None, str]:
    """The token that a start means, None for the mean of the patches; and a note."""
    config = tape.config
    if start == "class":
        if not config.class_token:
            return None, "this model has no class token: starts from the mean of the patches"
        if config.pool == "class+mean":
            return 0, "the head reads the mean of the patches, too: start = mean shows that part"
        if config.pool != "class":
            return None, "the head does not read the class token: starts from the mean of the patches"
        return 0, ""
    if start == "distillation":
        if not config.distillation_token:
            raise UsageError("this model has no distillation token", "use start = class, mean, a token's number or (row, column)")
        return 1, "starts from the distillation token"
    if start == "mean":
        return None, "starts from the mean of the patches"
    if isinstance(start, str):
        raise one_of("start", start, STARTS)
    if isinstance(start, tuple):
        rows, columns = tape.grid
        if len(start) != 2 or not (0 <= start[0] < rows and 0 <= start[1] < columns):
            raise UsageError(f"patch {start} does not exist", f"this model has rows 0 to {rows - 1} and columns 0 to {columns - 1}")
        return tape.prefix + start[0] * columns + start[1], f"starts from the patch in row {start[0]}, column {start[1]}"
    return check_index("token", start, config.tokens), f"starts from token {start}"


def precise(value: torch.Tensor) -> torch.Tensor:
    """In double precision where the device has it: long products of matrices lose digits."""
    return value if value.device.type == "mps" else value.double()


def to_grid(tape: Tape, row: torch.Tensor) -> np.ndarray:
    """One number per token (T,) → the patches' grid (h, w); tokens before the patches are left out."""
    return row[tape.prefix :].detach().double().cpu().numpy().reshape(tape.grid)


def to_cells(pixels: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Sums of (H, W) numbers over the cells of a grid that divides the picture."""
    for axis, cells in enumerate(grid):
        starts = -(-np.arange(cells) * pixels.shape[axis] // cells)
        pixels = np.add.reduceat(pixels, starts, axis=axis)
    return pixels


def heat(tape: Tape, item: int, grid: np.ndarray, method: str, *, note: str = "", at: int | None = None, **facts: Any) -> Heatmap:
    """A heat map that knows its original picture; `at`: the picture's place on this tape where it differs from `item`."""
    picture = tape.pictures[item if at is None else at] if tape.pictures else None
    original, box = (picture.original, picture.box) if picture else (None, None)
    return Heatmap(grid, method, item=item, original=original, box=box, note=note, **facts)


def score(logits: torch.Tensor, target: int) -> torch.Tensor:
    """What a change is measured by (B,): the target's probability; the output itself where there is only one (regression)."""
    return logits[:, 0] if logits.shape[1] == 1 else logits.softmax(dim=1)[:, target]


def score_unit(tape: Tape) -> str:
    return "output" if tape.config.classes == 1 else "probability"


def outlier_threshold(norms: np.ndarray) -> np.ndarray:
    """The norm above which a patch is an artefact, per row of (L, N)."""
    middle = np.median(norms, axis=1)
    spread = 1.4826 * np.median(np.abs(norms - middle[:, None]), axis=1)
    return np.maximum(middle + OUTLYING * spread, LARGER * middle)
