"""What a figure says beside its picture: which model, which pictures, made by what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vitral.base.files import sha256_bytes
from vitral.base.numbers import to_numpy
from vitral.base.picture import Picture
from vitral.config import to_dict
from vitral.draw.overlay import to_rgb
from vitral.draw.provenance import command_line
from vitral.model.classifier import Classifier

if TYPE_CHECKING:
    from PIL import Image


def stems(pictures: Sequence[Picture]) -> list[str]:
    """A file name for each picture: its own without the ending, numbered where names meet."""
    own = [re.sub(r"[^\w.-]+", "-", Path(picture.source).stem).strip("-.") or "picture" for picture in pictures]
    names: list[str] = []
    for number, base in enumerate(own):
        name = base
        while own.count(base) > 1 and (name in own or name in names):
            name, number = f"{base}-{number}", number + 1
        names.append(name)
    return names


def seen(picture: Picture) -> Image.Image:
    """The part of the original that the model saw."""
    box = picture.box
    return to_rgb(picture.original).crop((round(box.left), round(box.top), round(box.right), round(box.bottom)))


def about_model(model: Classifier, command: str = "") -> dict[str, Any]:
    """What a figure must say of its model."""
    origin = model.origin
    return {
        "command": command or command_line(),
        "model": {
            "source": origin.source.value,
            "sha256": digest(model),
            "assumed": origin.assumptions(),
            "changes": list(origin.changes),
            "config": to_dict(model.config),
        },
        "torch": torch.__version__,
    }


def about_picture(picture: Picture) -> dict[str, Any]:
    box = picture.box
    return {"source": Path(picture.source).name, "sha256": picture.digest, "box": [box.left, box.top, box.right, box.bottom]}


def digest(model: Classifier) -> str:
    """SHA-256 over the names and numbers of all parameters: the same weights give the same, whatever file they came from."""
    parts = []
    for name, tensor in model.state_dict().items():
        values = tensor.detach().cpu().contiguous()
        parts.append(f"{name} {tuple(values.shape)} {sha256_bytes(to_numpy(values.reshape(-1).view(torch.uint8)).tobytes())}")
    return sha256_bytes("\n".join(parts).encode())
