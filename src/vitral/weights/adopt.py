"""A live ViT of timm, torchvision or transformers → our own model, converted and proved.

model = vitral.adopt(timm.create_model("vit_base_patch16_224", pretrained=True))
model.origin.parity          # largest relative difference per layer
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from vitral.base.errors import UsageError
from vitral.model.classifier import Classifier
from vitral.weights.assemble import assemble
from vitral.weights.declared import Declared
from vitral.weights.detect import detect
from vitral.weights.library_settings import of_timm, of_torchvision, of_transformers
from vitral.weights.proof import TOLERANCE, prove


def adopt(module: nn.Module, tolerance: float = TOLERANCE, *, declared: Declared | None = None) -> Classifier:
    """Our model with the module's weights, on its device; raises ParityError when it computes something else.

    Attention may be fused, eager or compiled in the source: only its blocks' outputs are compared.
    `declared` adds what the caller knows of its preprocessing and classes.
    """
    model, source = converted(module, declared)
    proof = prove(model, source, tolerance, name=type(source).__name__).check()
    model.origin = dataclasses.replace(model.origin, parity=proof.figures())
    return model.to(next(source.parameters()).device)


def converted(module: nn.Module, declared: Declared | None = None) -> tuple[Classifier, nn.Module]:
    """Our model with the module's weights, not yet proved, and the module without its wrappers."""
    if not isinstance(module, nn.Module):
        raise UsageError(f"adopt takes a live module, not {type(module).__name__}", "for files, folders and names use vitral.load")
    source = _unwrap(module)
    if isinstance(source, Classifier):
        raise UsageError("this is a model of Vitral already", "use it as it is")
    tensors = {name: tensor.detach() for name, tensor in source.state_dict().items()}
    name = type(source).__name__
    from_library = (declared or Declared()).or_else(_from_module(source, detect(tensors, name).family.name))
    return assemble(tensors, describe(source), from_library), source


def _unwrap(module: nn.Module) -> nn.Module:
    """Without torch.compile's and DDP's wrappers, and a masked autoencoder without its decoder."""
    for name in ("_orig_mod", "module"):
        if isinstance(inner := getattr(module, name, None), nn.Module):
            return _unwrap(inner)
    if type(module).__name__ == "ViTMAEForPreTraining":
        return module.get_submodule("vit")
    return module


def _from_module(source: Any, family: str) -> Declared:
    """What a live module knows of itself."""
    if family.startswith("hf-"):
        return of_transformers(source.config.to_dict(), f"{type(source).__name__}'s config")
    if family == "torchvision":
        return of_torchvision(source)
    if family == "torchvision-resnet":
        return Declared()
    return of_timm(source)


def describe(source: Any) -> str:
    """Class and, where the library tells, the name of the weights."""
    settings = getattr(source, "pretrained_cfg", None) or {}
    name = ".".join(part for part in (settings.get("architecture"), settings.get("tag")) if part) if isinstance(settings, dict) else ""
    name = name or getattr(getattr(source, "config", None), "_name_or_path", "") or ""
    return f"{type(source).__module__.partition('.')[0]} {type(source).__name__}{f' {name}' if name else ''}"
