"""Run a model once and record what happens inside: `tape = vitral.watch(model, "cat.jpg")`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import torch

from vitral.base.errors import UsageError
from vitral.base.picture import Picture
from vitral.data.images.preprocess import open_picture
from vitral.model.classifier import Classifier, evaluating
from vitral.model.tape import Edit, Reader, Tape

FAR = 10
"""So many times the way from black to white: no normalised image without a negative value lies beyond; pixels from 0 to 255 do."""


def watch(
    model: Classifier,
    x: Any,
    keep: str | Iterable[str] | None = None,
    *,
    blocks: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    rows: str | Iterable[int] | None = None,
    edits: dict[str, Edit] | None = None,
    readers: dict[str, Reader] | None = None,
    gradients: bool = False,
) -> Tape:
    """One forward pass in eval mode, recorded (see `Tape` for what can be kept and edited).

    x: a tensor (B, C, H, W) or (C, H, W), a picture, a PIL image, a path, or a list of these.
    """
    tape = Tape(model, keep, blocks=blocks, heads=heads, rows=rows, edits=edits, readers=readers, gradients=gradients)
    if gradients and torch.is_inference_mode_enabled():
        raise UsageError("gradients cannot be kept inside torch.inference_mode()", "call watch outside it")
    images, tape.pictures = as_images(model, x)
    parameter = next(model.parameters())
    tape.images = images = (
        images.to(parameter.device, parameter.dtype)
        if not torch.is_autocast_enabled(parameter.device.type)
        else images.to(parameter.device)
    )
    grad = torch.enable_grad() if gradients else torch.no_grad() if torch.is_grad_enabled() else nullcontext()
    with evaluating(model), grad:
        model(images, tape=tape)
    return tape


def as_images(model: Classifier, x: Any) -> tuple[torch.Tensor, list[Picture] | None]:
    """Whatever shows a picture, as a batch; with the pictures where they are known."""
    items = each(x)
    if isinstance(items, torch.Tensor):
        _check_prepared(model, items)
        return items, None
    if any(isinstance(item, torch.Tensor) for item in items):
        if len({getattr(item, "shape", None) for item in items}) > 1:
            raise UsageError("tensors of another shape, or of another kind, in one list", "pass tensors (C, H, W) of one size, or pictures")
        images = torch.stack(items)
        _check_prepared(model, images)
        return images, None
    pictures = open_pictures(model, items)
    return torch.stack([picture.tensor for picture in pictures]), pictures


def each(x: Any) -> torch.Tensor | list[Any] | tuple[Any, ...]:
    """Whatever shows one picture or several, as several."""
    items = x if isinstance(x, list | tuple | torch.Tensor) else list(x) if isinstance(x, Iterator) else [x]
    if isinstance(items, torch.Tensor) and items.ndim == 3:
        items = items[None]
    if not len(items):
        raise UsageError("no pictures given", "pass a tensor, a path, or a list of pictures")
    return items


def open_pictures(model: Classifier, items: Iterable[Any]) -> list[Picture]:
    """Paths, PIL images or arrays, opened as the model wants them."""
    return [item if isinstance(item, Picture) else open_picture(item, model) for item in items]


def _check_prepared(model: Classifier, images: torch.Tensor) -> None:
    """Tensors are taken as they are: pixels from 0 to 255 would be read as enormous normalised ones."""
    ready = "pass the file, the PIL image or a numpy array, which are; or normalise the tensor"
    if not images.is_floating_point():
        raise UsageError(f"a tensor of {str(images.dtype).removeprefix('torch.')} is not prepared for a model", ready)
    if images.device.type != "cpu" or not images.numel():
        return  # a GPU would have to be waited for
    lowest, highest = (float(value) for value in images.detach().aminmax())
    if not math.isfinite(lowest + highest):
        raise UsageError("a tensor holds values that are NaN or infinite", "look at what made it: no answer can be had of it")
    if lowest >= 0 and highest > FAR / min(model.origin.std.value):
        raise UsageError(f"a tensor with values from {lowest:.4g} to {highest:.4g} is not prepared for a model", ready)
