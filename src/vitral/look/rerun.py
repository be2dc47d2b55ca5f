"""Running a tape's images again: with other things kept, or changed; and what a change is measured by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from vitral.base.errors import UsageError
from vitral.cost.precision import autocast, has_bf16, worth_bf16
from vitral.look.choice import check_item
from vitral.look.watch import watch
from vitral.model.classifier import Classifier, evaluating
from vitral.model.head import probabilities
from vitral.model.tape import Edit, Tape
from vitral.model.vit import ViT


def ensure_recorded(tape: Tape, item: int, names: Iterable[str], gradients: bool = False) -> tuple[Tape, int]:
    """This tape when it holds whole values under `names` (and their graph), else the picture watched again, edits included."""
    names = list(names)
    item = check_item(tape, item)
    cut = any(name.endswith(".attention.weights") for name in names) and (tape.recorded_heads is not None or tape.recorded_rows is not None)
    if not cut and all(name in tape for name in names) and (tape.gradients or not gradients):
        return tape, item
    # An edit may treat the pictures of a batch differently: with edits all of them go again, each in its place.
    chosen = slice(None) if tape.edits else slice(item, item + 1)
    return rewatch(tape, chosen, keep=names, gradients=gradients), item if tape.edits else 0


def weight_names(tape: Tape) -> list[str]:
    """What a tape calls the attention weights of each block."""
    return [f"blocks.{block}.attention.weights" for block in range(tape.config.depth)]


def images_of(tape: Tape) -> torch.Tensor:
    """The batch that a tape has seen (B, C, H, W)."""
    if tape.images is None:
        raise UsageError("this tape does not know its pictures, so they cannot be run again", "make it with vitral.watch(model, x)")
    return tape.images


def rewatch(tape: Tape, chosen: slice, **options: Any) -> Tape:
    """Watch pictures of a tape once more, with other things kept."""
    new = watch(tape.model, images_of(tape)[chosen], **{"edits": tape.edits, **options})
    new.pictures = None if tape.pictures is None else tape.pictures[chosen]
    return new


def single_image(tape: Tape, item: int) -> torch.Tensor:
    """One picture of a tape (C, H, W), to be run again with changes. Refused where an edit would not follow it out of its batch."""
    images = images_of(tape)
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


def run_fast(tape: Tape, images: torch.Tensor) -> torch.Tensor:
    """`run` for many pictures that are compared with each other, as `fast_logits` has it; with a tape's edits it is `run`."""
    return run(tape, images) if tape.edits else fast_logits(tape.model, images)


def fast_logits(model: Classifier, images: torch.Tensor, edits: dict[str, Edit] | None = None) -> torch.Tensor:
    """Logits (B, K) in eval mode: where a CPU is quicker with bf16, all but the head is computed in it.

    The head stays in fp32: logits of 10 would be rounded to 0.06.
    """
    able = images.device.type == "cpu" and images.dtype == torch.float32 and has_bf16(images.device) and worth_bf16(model)
    if not able or not isinstance(model, ViT) or model.distillation_head is not None:
        exact = Tape(model, keep=["logits"], edits=edits)
        with evaluating(model):
            return model(images, tape=exact)
    inner = Tape(model, keep=["pooled"], edits=edits) if edits else None
    with evaluating(model), autocast(torch.bfloat16, images.device):
        pooled, _ = model.summarise(images, inner)
    return model.head(pooled.float())


def _after(first: Edit, second: Edit) -> Edit:
    return lambda value, name: second(first(value, name), name)


def score(tape: Tape | Classifier, logits: torch.Tensor, target: int) -> torch.Tensor:
    """What a change is measured by (B,): the target's probability; the output itself where there is only one (regression)."""
    return logits[:, 0] if score_unit(tape) == "output" else probabilities(logits, tape.origin.multi_label)[:, target]


def score_unit(tape: Tape | Classifier) -> str:
    return "output" if tape.config.classes == 1 and not tape.origin.multi_label else "probability"
