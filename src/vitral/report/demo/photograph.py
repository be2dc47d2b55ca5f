"""A photograph in a ViT that others trained: what the demo ends with, where weights are to be had."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec
from pathlib import Path

from vitral.base.errors import VitralError
from vitral.base.layout import WEIGHTS
from vitral.base.network import reachable
from vitral.look.describe import about_model, about_picture
from vitral.look.method import call, choose, watch_for
from vitral.look.sheet import sheet
from vitral.look.watch import open_pictures
from vitral.model.classifier import Classifier
from vitral.weights.load import load

PHOTOGRAPH = Path(__file__).parent / "cat.jpg"
"""Chelsea the cat, CC0 by Stéfan van der Walt; scikit-image's `chelsea` as JPEG."""
_NAMED = "timm:vit_tiny_patch16_224"
"""Small (23 MB), and a thousand classes."""
_REPOSITORY = "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k"
"""Where timm keeps it on the hub."""
_FILES = "vit_tiny*.safetensors"
AUTO, _NONE = "auto", "none"
_METHODS = ("attention", "rollout", "gradient_rollout", "relevance", "legrad", "gradcam", "occlusion", "similarity")
"""Those that take a second or two together with the others; integrated gradients takes eight."""


@dataclasses.dataclass(frozen=True)
class Weights:
    """A model to look at the photograph, or why there is none."""

    name: str
    """What `vitral.load` takes."""
    model: Classifier | None = None
    missing: str = ""


@dataclasses.dataclass(frozen=True)
class Sheet:
    path: Path
    answer: str
    """`Egyptian cat, 81.3 %`"""


def find_weights(asked: str = AUTO) -> Weights:
    """The model that is asked for; `auto`: a file of ViT-Ti in this folder, or timm's from the hub or its cache.

    What was asked for by name and cannot be had is an error; with `auto` it is only told.
    """
    if asked == _NONE:
        return Weights(_NAMED, missing="not asked for")
    if asked != AUTO:
        return Weights(asked, load(asked))
    files = sorted(map(str, Path().glob(_FILES)))
    if not files and (find_spec("timm") is None or find_spec("huggingface_hub") is None):
        return Weights(_NAMED, missing="no weights here, and timm, which fetches some, is not installed")
    if not files and not _cached() and not _online():
        return Weights(_NAMED, missing="no weights here, and no network to fetch some")
    name = files[0] if files else _NAMED
    try:
        return Weights(name, load(name))
    except VitralError as error:
        return Weights(name, missing=str(error))


def draw_photograph(model: Classifier, folder: Path, command: str = "") -> Sheet:
    """The sheet of the photograph in `folder`, as `vitral look` draws it."""
    (picture,) = open_pictures(model, [PHOTOGRAPH])
    chosen = choose(model, _METHODS)
    tape = watch_for(model, [picture], chosen)
    page = sheet(tape, [call(method, tape) for method in chosen], PHOTOGRAPH.stem)
    caption = f"A photograph in {model.origin.source.value or 'another model'}, which others trained: {page.answer}"
    about = {**about_model(model, command), "picture": about_picture(picture)}
    return Sheet(page.save(folder / PHOTOGRAPH.stem, about, ("png",), caption)[0], page.answer)


def _cached() -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(_REPOSITORY, WEIGHTS), str)


def _online() -> bool:
    from huggingface_hub import constants

    return not constants.HF_HUB_OFFLINE and reachable(constants.ENDPOINT)
