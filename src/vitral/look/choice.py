"""What a user chooses: which picture, class, block, head and token; checked, with a line that says what there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from vitral.base.errors import UsageError, one_of, out_of_range
from vitral.model.classifier import Classifier
from vitral.model.tape import Tape

Start = str | int | tuple[int, int]
STARTS = ("class", "distillation", "mean")
OPTION_DEFAULTS: dict[str, Any] = {"item": 0, "target": None, "start": "class", "block": None, "head": None, "exact": False}
"""What an option holds when its user has chosen nothing."""


def model_of(model: Classifier | Tape) -> Classifier:
    """For methods that look at weights alone: they take a model or a tape of it."""
    return model.model if isinstance(model, Tape) else getattr(model, "_orig_mod", model)


def need_tape(tape: Tape) -> None:
    if not isinstance(tape, Tape):
        raise UsageError(f"a method looks at a tape, and this is of type {type(tape).__name__}", "make one: vitral.watch(model, picture)")


def need_transformer(model: Classifier | Tape, what: str) -> None:
    if not hasattr(model, "config"):
        need_tape(cast(Any, model))
    if not model.config.is_transformer:
        reason = f"{what} needs attention, and a {model.config.family} has none"
        raise UsageError(reason, "use gradcam, integrated_gradients, occlusion, rise or similarity for this model")


def unused_note(method: str, **options: Any) -> str:
    """What a reader must be told of options that were chosen and change nothing: every method has one signature, not each option a use."""
    chosen = [name for name, value in options.items() if value != OPTION_DEFAULTS[name]]
    return f"{method} does not use {' and '.join(chosen)}" if chosen else ""


def check_item(tape: Tape, item: int) -> int:
    need_tape(tape)
    count = tape.logits.shape[0]
    if not -count <= item < count:
        raise out_of_range("picture", item, count, "this tape")
    return item % count


def check_index(what: str, index: int, count: int) -> int:
    """A block or head by number, counted from the end when negative."""
    if not isinstance(index, int | np.integer) or isinstance(index, bool) or not -count <= index < count:
        raise out_of_range(what, index, count)
    return int(index) % count


def find_target(tape: Tape, item: int, target: int | str | None) -> int:
    """The class that a map explains: by number, by name, or the predicted one."""
    if not tape.config.classes:
        hint = "look with attention, rollout, similarity or norms, or give it a head: vitral probe --save, vitral train finetune"
        raise UsageError("this model has no head, so there is no class to explain", hint)
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
        raise out_of_range("class", target, count)
    return int(target)


def start_row(tape: Tape, matrix: torch.Tensor, start: Start) -> tuple[torch.Tensor, str]:
    """The row (…, T) of a token-to-token matrix (…, T, T) that a map starts from, and what a reader must know about it.

    class: what the head reads (the class token, or the mean of the patches where it reads those); distillation: that token;
    mean: the mean of the patches; a number: this token; (row, column): this patch.
    """
    index, note = start_index(tape, start)
    if index is None:
        return matrix[..., tape.prefix :, :].mean(dim=-2), note
    return matrix[..., index, :], note


def start_patch(tape: Tape, start: Start) -> tuple[int, int] | None:
    """(row, column) of the patch that a start means; None where it means another token, or the mean."""
    index, _ = start_index(tape, start)
    if index is None or index < tape.prefix:
        return None
    row, column = divmod(index - tape.prefix, tape.grid[1])
    return row, column


def check_patch(what: str, start: Sequence[int], grid: tuple[int, int], owner: str) -> tuple[int, int]:
    """(row, column) as it is given, where the grid has such a place."""
    if len(start) != 2 or not all(
        isinstance(each, int | np.integer) and 0 <= each < count for each, count in zip(start, grid, strict=False)
    ):
        hint = f"{owner} has rows 0 to {grid[0] - 1} and columns 0 to {grid[1] - 1}"
        raise UsageError(f"{what} ({', '.join(map(str, start))}) does not exist", hint)
    return int(start[0]), int(start[1])


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
        return 0, "the class token's part; start = distillation shows the other head's" if config.distillation_token else ""
    if start == "distillation":
        if not config.distillation_token:
            raise UsageError("this model has no distillation token", "use start = class, mean, a token's number or (row, column)")
        return 1, "starts from the distillation token"
    if start == "mean":
        return None, "starts from the mean of the patches"
    if isinstance(start, str):
        raise one_of("start", start, STARTS)
    if isinstance(start, tuple | list):
        row, column = check_patch("patch", start, tape.grid, "this model")
        return tape.prefix + row * tape.grid[1] + column, f"starts from the patch in row {row}, column {column}"
    return check_index("token", start, config.tokens), f"starts from token {start}"
