"""Which family is it? Found from the keys, after taking off the prefixes that wrappers leave; others are refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from vitral.base.errors import WeightsError
from vitral.weights import (
    from_beit,
    from_clip,
    from_dino,
    from_dinov3,
    from_eva,
    from_google,
    from_huggingface,
    from_siglip,
    from_timm,
    from_torchvision,
)
from vitral.weights.family import Family
from vitral.weights.keymap import listed, pattern

OURS = Family("vitral", "Vitral", ("patches.projection.weight", "blocks.{i}.attention.qkv.weight"), {"{rest}": "{rest}"}, "half")

# The first family whose markers are all there is the one: the more particular stand before the more general.
FAMILIES: tuple[Family, ...] = (
    OURS,
    *from_dinov3.FAMILIES,
    *from_dino.FAMILIES,
    *from_eva.FAMILIES,
    *from_timm.FAMILIES,
    *from_torchvision.FAMILIES,
    *from_beit.FAMILIES,
    *from_siglip.FAMILIES,
    *from_huggingface.FAMILIES,
    *from_clip.FAMILIES,
    *from_google.FAMILIES,
)

# What torch.compile, DDP, training scripts and transformers' own classes put before names.
_PREFIXES = (
    "module.",
    "_orig_mod.",
    "model.",
    "backbone.",
    "vit.",
    "deit.",
    "beit.",
    "data2vec_vision.",
    "dinov2.",
    "dinov2_with_registers.",
    "vision_model.",
    "vision_tower.",
    "opt/target/",
    "params/",
    "img/",
    "visual.",
    "trunk.",
    "net.",
    "base_encoder.",
)

# A name that gives another kind of model away (a regular expression) → what it is.
REFUSED: dict[str, str] = {
    r"^layers\.\d+\.blocks\.\d+\.|(^|\.)rel_pos_[hw]": "a model with windows or relative positions of another kind (Swin, ViTDet, SAM)",
    r"^(?!patch_embed).*downsample\.(reduction|norm)\.": "a Swin or another staged model: windows and merged patches are not part of a ViT",
    r"patch_embed\.backbone\.|(^|/)conv_root/": "a hybrid of another library (a convolutional stem of its own)",
    r"\.attns\.\d|\.ffns\.\d": "a ViT with parallel branches in its blocks",
    r"^stages\.\d|^features\.\d": "a staged or convolutional model",
    r"^blocks\.\d+\.(attn\.)?lambda_[abqk]": "a ViT with differential attention",
    r"visual\.layer1\.": "CLIP with a ResNet as its vision tower",
}


@dataclass(frozen=True)
class Detected:
    """The family, the tensors under the family's names, and what was taken off them."""

    family: Family
    tensors: dict[str, Tensor]
    notes: tuple[str, ...] = ()


def detect(tensors: Mapping[str, Tensor], source: str = "the file") -> Detected:
    """The family of a state dict; raises with what it seems to be instead, when it is none of ours."""
    named, chunked = _unchunk(tensors)
    notes: list[str] = ["chunks of blocks joined"] if chunked else []
    for _ in range(6):
        refuse(named, source)
        family = next((family for family in FAMILIES if _fits(family, named)), None)
        if family is not None:
            return Detected(family, named if family.prepare is None else family.prepare(named), tuple(notes))
        prefix = next((prefix for prefix in _PREFIXES if any(key.startswith(prefix) for key in named)), None)
        if prefix is None:
            break
        named = _strip(named, prefix, source)
        notes.append(f"prefix {prefix!r} taken off the names")
    raise WeightsError(
        f"{source} is of no family that Vitral knows ({len(tensors)} tensors: {listed(sorted(tensors), 4)})",
        "known are timm, DeiT, DINO, DINOv2, MAE, CLIP, torchvision, Hugging Face and Google ViTs",
    )


def refuse(keys: Iterable[str], source: str) -> None:
    keys = list(keys)
    for expression, what in REFUSED.items():
        if key := next((key for key in keys if re.search(expression, key)), None):
            raise WeightsError(f"{source} is {what}", f"the key {key} tells; load a plain ViT instead")


def _unchunk(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], bool]:
    """DINOv2's training files keep blocks in chunks, `blocks.0.11.…`; the second number alone counts."""
    renamed = {re.sub(r"(^|\.)blocks\.\d+\.(\d+)\.", r"\1blocks.\2.", key): tensor for key, tensor in tensors.items()}
    return (renamed, True) if len(renamed) == len(tensors) and set(renamed) != set(tensors) else (dict(tensors), False)


def _fits(family: Family, keys: Mapping[str, Tensor]) -> bool:
    return all(any(regex.fullmatch(key) for key in keys) for regex in map(pattern, family.markers))


def _strip(tensors: Mapping[str, Tensor], prefix: str, source: str) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        name = key.removeprefix(prefix)
        if name in out:
            raise WeightsError(f"{source} has {name} both with and without {prefix!r}", "it holds two models: save the one you want")
        out[name] = tensor
    return out
