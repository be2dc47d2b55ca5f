"""A family of weights: how to know it, its rule table, and what its files do not say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vitral.base.errors import UsageError, one_of
from vitral.base.origin import HALF, IMAGENET_MEAN, IMAGENET_STD
from vitral.weights.keymap import Table

_CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class Family:
    """Everything particular to one layout of keys."""

    name: str
    label: str
    markers: tuple[str, ...]
    """Names that must each be there; `{i}`, `{p}`, `{rest}` as in a rule table."""
    table: Table
    preprocess: str
    """The family's convention, a key of PREPROCESS: assumed unless something says more."""
    config: dict[str, Any] = field(default_factory=dict)
    """Fields of ModelConfig that no key tells and the family fixes."""
    norm_epsilon: float = 1e-6
    activation: str = "gelu"
    prepare: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None
    """For tensors that hold several of ours, or parts of one: the same numbers, taken apart, before the table names them."""
    note: str = ""
    """Said in the origin's changes when this family was read."""


PREPROCESS: dict[str, dict[str, Any]] = {
    "half": {"mean": HALF, "std": HALF, "resize": "short", "crop": 0.9, "interpolation": "bicubic"},
    "squash": {"mean": HALF, "std": HALF, "resize": "squash", "crop": 1.0, "interpolation": "bilinear"},
    "imagenet": {"mean": IMAGENET_MEAN, "std": IMAGENET_STD, "resize": "short", "crop": 0.875, "interpolation": "bicubic"},
    "deit": {"mean": IMAGENET_MEAN, "std": IMAGENET_STD, "resize": "short", "crop": 0.9, "interpolation": "bicubic"},
    "torchvision": {"mean": IMAGENET_MEAN, "std": IMAGENET_STD, "resize": "short", "crop": 0.875, "interpolation": "bilinear"},
    "clip": {"mean": _CLIP_MEAN, "std": _CLIP_STD, "resize": "short", "crop": 1.0, "interpolation": "bicubic"},
}


def preprocess_fields(preprocess: str | dict[str, Any] | None) -> dict[str, Any]:
    """The user's word on preprocessing as origin fields: a name of PREPROCESS, or any of its fields."""
    if preprocess is None:
        return {}
    if isinstance(preprocess, str):
        if preprocess not in PREPROCESS:
            raise one_of("preprocessing", preprocess, PREPROCESS)
        return dict(PREPROCESS[preprocess])
    fields = dict(preprocess)
    if unknown := next((key for key in fields if key not in PREPROCESS["half"]), None):
        raise one_of("preprocessing field", unknown, PREPROCESS["half"])
    for key in ("mean", "std"):
        if key in fields:
            value = fields[key]
            fields[key] = (float(value),) * 3 if isinstance(value, int | float) else tuple(float(v) for v in value)
            if key == "std" and min(fields[key]) <= 0:
                raise UsageError(f"std {fields[key]} is not positive", "use something like 0.5")
    if fields.get("resize", "short") not in ("short", "squash"):
        raise one_of("resize", fields["resize"], ("short", "squash"))
    if "crop" in fields and not 0 < float(fields["crop"]) <= 1:
        raise UsageError(f"crop {fields['crop']} is not a share", "use a number above 0 and at most 1")
    return fields
