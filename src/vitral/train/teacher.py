"""A model to learn from: any that `vitral.load` takes, of another size and with other classes than the student."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.base.errors import ConfigError
from vitral.base.progress import say
from vitral.base.text import few
from vitral.data.class_names import check_order, find_classes
from vitral.data.images.preprocess import Preprocess
from vitral.data.splits.open import Data
from vitral.data.splits.sealed import check_seen
from vitral.model.classifier import Classifier

Distil = Literal["answers", "features"]
ENOUGH = 0.5
"""Share of the data's classes that a teacher must know by name for its answers to be learnt, unless the user says which."""


class Teacher(nn.Module):
    """Shown the student's pictures as it knows them: in its own normalisation, channels and size."""

    scale: Tensor
    shift: Tensor
    columns: Tensor | None
    shared: Tensor | None
    """Those of the student's classes that the teacher has, too; None: all."""

    def __init__(self, model: Classifier, student: Preprocess, numbers: list[int | None] | None = None) -> None:
        """`numbers`: what the teacher calls each of the student's classes, None where it has none such; not given: they are the same."""
        super().__init__()
        own = Preprocess.of(model)
        if own.channels != student.channels and student.channels != 1:
            raise ConfigError(f"the teacher wants {own.channels} channels, the student {student.channels}", "choose a teacher with as many")
        self.model, self.size, self.channels = model.requires_grad_(False).eval(), own.image_size, own.channels
        scale = torch.tensor(student.std) / torch.tensor(own.std)
        shift = (torch.tensor(student.mean) - torch.tensor(own.mean)) / torch.tensor(own.std)
        shared = [index for index, number in enumerate(numbers or ()) if number is not None]
        columns = [number for number in numbers or () if number is not None]
        for name, values in (
            ("scale", scale.view(1, -1, 1, 1)),
            ("shift", shift.view(1, -1, 1, 1)),
            ("columns", torch.tensor(columns) if numbers else None),
            ("shared", torch.tensor(shared) if numbers and None in numbers else None),
        ):
            self.register_buffer(name, values, persistent=False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Logits of the classes that both know, in the student's order."""
        logits = self.model(self.shown(images))
        return logits if self.columns is None else logits[:, self.columns]

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """The vector that its head reads, (B, D)."""
        return self.model.pooled(self.shown(images))

    @property
    def width(self) -> int:
        """Numbers of that vector."""
        config, device = self.model.config, self.scale.device
        with torch.no_grad():
            return self.model.pooled(torch.zeros(1, config.channels, *config.image_size, device=device)).shape[1]

    def shown(self, images: Tensor) -> Tensor:
        """The same view of each picture; a grey one has the same in all channels."""
        images = images.expand(-1, self.channels, -1, -1) * self.scale + self.shift
        return images if images.shape[-2:] == self.size else F.interpolate(images, self.size, mode="bilinear", antialias=True)

    def knows(self, labels: Tensor) -> Tensor:
        """1 for each label (B,) that is one of its classes, else 0."""
        known = torch.ones_like(labels, dtype=torch.bool) if self.shared is None else (labels[:, None] == self.shared).any(1)
        return known.float()


def as_teacher(
    model: Classifier, name: str, data: Data, student: Preprocess, distil: Distil | None = None, quiet: bool = False
) -> tuple[Teacher, Distil]:
    """The model of that name as a teacher, and what is learnt from it: as asked, or as its classes allow, which is said."""
    check_seen(model.origin.data, data.config, f"teacher {name}")
    numbers = class_numbers(model, data)
    reason = _why_not(model, data, numbers)
    if distil == "answers" and reason:
        raise ConfigError(
            f"teacher {name} has no answers to learn: {reason}", "set distil = features, or fine-tune it on the same data first"
        )
    known = [class_name for class_name, number in zip(data.class_names, numbers, strict=True) if number is not None]
    if distil is None and not reason and len(known) < ENOUGH * len(numbers):
        reason = (
            f"it knows {len(known)} of the {len(numbers)} classes of {data.name} by name ({few(known)}); --set distil=answers takes those"
        )
    distil = distil or ("features" if reason else "answers")
    if not quiet and (note := _note(model, data, numbers, distil, reason)):
        say(f"note: {note}")
    same = distil == "features" or numbers == list(range(model.config.classes))
    return Teacher(model, student, None if same else numbers), distil


def class_numbers(model: Classifier, data: Data) -> list[int | None]:
    """What the teacher calls each class of the data; None: it has none of that name. Without names, as many classes are the same ones."""
    ours, classes, theirs = model.origin.classes.value, model.config.classes, data.class_names
    if not ours and classes == len(theirs):
        check_order("the teacher", data.name, theirs)
    if not ours:
        return list(range(classes)) if classes == len(theirs) else [None] * len(theirs)
    return find_classes("the teacher", ours, classes, data.name, theirs)


def _why_not(model: Classifier, data: Data, numbers: list[int | None]) -> str:
    """Why a teacher's answers cannot be learnt; nothing: they can."""
    if not model.config.classes:
        return "it has no head"
    if data.train.multi_label or model.origin.multi_label:
        return "answers are of one class a picture, and here a picture has several labels"
    if not model.origin.classes.value and numbers[0] is None:
        return f"its {model.config.classes:,} classes have no names, and {data.name} has {len(numbers)}"
    if sum(number is not None for number in numbers) < 2:
        return f"it knows no two classes of {data.name} by name ({few(data.class_names)})"
    return ""


def _note(model: Classifier, data: Data, numbers: list[int | None], distil: Distil, reason: str) -> str:
    if distil == "features":
        return f"the teacher's features are learnt, not its answers: {reason}" if reason else ""
    if not model.origin.classes.value:
        return f"the teacher's classes have no names: those of {data.name} are taken in their order"
    strange = [class_name for class_name, number in zip(data.class_names, numbers, strict=True) if number is None]
    if strange:
        return f"the teacher does not know {few(strange)}: pictures of these classes are learnt from their labels alone"
    if len(numbers) < model.config.classes:
        return f"the teacher answers among the {len(numbers)} of its {model.config.classes:,} classes that {data.name} has"
    return ""
