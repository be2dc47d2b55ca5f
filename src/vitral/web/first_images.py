"""The images that the explorer starts with: those named by the user, or a few that fit the model."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vitral.base.errors import VitralError
from vitral.base.files import read_bounded
from vitral.base.progress import say
from vitral.data.images.preprocess import open_picture
from vitral.data.splits.open import open_data, open_source
from vitral.model.classifier import Classifier
from vitral.run.folder import RunFolder
from vitral.run.made_here import made_here
from vitral.web.server.limits import Limits

COUNT = 6
_LABELLED = 64
"""Validation images that an accuracy is taken of while heads are switched off."""


def named_images(paths: tuple[str, ...], limits: Limits) -> list[tuple[bytes, str]]:
    """Contents and names of the user's files."""
    return [(read_bounded(Path(path), limits.upload), Path(path).name) for path in paths]


def fitting_images(where: str) -> list[tuple[bytes, str]]:
    """Validation pictures of a run on data that needs no network; else scikit-learn's two photographs."""
    try:
        images = _from_run(RunFolder.open(where))
    except VitralError:
        images = []  # no run, or one whose data is not here: the photographs serve
    return images or _photographs()


def labelled_images(where: str, model: Classifier) -> tuple[torch.Tensor, list[int]] | None:
    """Validation images (B, C, H, W) of the run and their labels; None without one class a picture, or without the data."""
    if model.config.classes < 2 or model.origin.multi_label:
        return None
    try:
        folder = RunFolder.open(where)
        split = open_data(folder.settled.data, seen=folder.learnt).validation if _openable(folder) else None
        if split is None or not len(split):
            return None
        some = split.balanced_subset(min(_LABELLED, len(split)), seed=0)
        images = [open_picture(some.picture(index), model).tensor for index in range(len(some))]
    except VitralError:
        return None
    return torch.stack(images), some.labels.tolist()


def _from_run(folder: RunFolder) -> list[tuple[bytes, str]]:
    """Of data that is part of Vitral or that a run made here has used; else the small pictures that lie in the run folder itself."""
    if not _openable(folder):
        return _stored(folder)
    config, labels = folder.settled.data, folder.settled.pretrain is None
    split = open_data(config, source=open_source(config, labels=labels)).validation
    chosen = np.unique(split.labels, return_index=True)[1].tolist() if labels else range(len(split))  # one of each class
    return [(_png(split.picture(index)), f"validation {index}") for index in chosen[:COUNT]]


def _openable(folder: RunFolder) -> bool:
    """Is the run's data part of Vitral, or such as a run made here has used?"""
    name = folder.settled.data.name
    return name == "digits" or (name.startswith("folder:") and made_here(folder.path))


def _stored(folder: RunFolder) -> list[tuple[bytes, str]]:
    pictures = folder.answers().pictures or {}
    if pictures:
        say(f"{folder.path} was not made on this machine: its data is not opened, the small pictures in the folder are shown")
    return [(_png(picture), f"test {position}") for position, picture in list(pictures.items())[:COUNT]]


def _photographs() -> list[tuple[bytes, str]]:
    from sklearn.datasets import load_sample_images

    images = load_sample_images()
    return [(_png(Image.fromarray(array)), Path(name).name) for array, name in zip(images.images, images.filenames, strict=True)]


def _png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()
