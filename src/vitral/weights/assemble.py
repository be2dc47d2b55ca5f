"""Foreign tensors → our model with its origin: detect, map, infer, check, fill."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from vitral.base.errors import UsageError, WeightsError
from vitral.base.origin import NO_HEAD, Change, Origin, assumed, fact, per_channel
from vitral.build import shadow
from vitral.config import ModelConfig
from vitral.model.classifier import Classifier
from vitral.weights.checkpoint import as_float32
from vitral.weights.declared import Declared, declare
from vitral.weights.detect import Detected, detect
from vitral.weights.family import PREPROCESS
from vitral.weights.from_timm import NAMED
from vitral.weights.infer import infer_config
from vitral.weights.keymap import Mapped, check, convert

# Plain ViTs of these kinds have the same keys as AugReg's but other means: a word in the file's name is a better guess than none.
_HINTS = {"deit": "deit", "dino": "imagenet", "mae": "imagenet", "clip": "clip"}


def assemble(tensors: Mapping[str, Tensor], source: str, declared: Declared | None = None, notes: tuple[str, ...] = ()) -> Classifier:
    """The model that the tensors make up, in eval mode on the CPU, every parameter filled exactly once."""
    declared = declared or Declared()
    detected = detect(tensors, source)
    declared = declared.or_else(from_shapes(detected)).or_else(_from_name(detected, source))
    mapped = convert(detected.family.table, detected.tensors, source)
    config, facts = infer_config(mapped.tensors, detected.family, declared, source)
    model = fill(config, mapped, source)
    changes = (*notes, *detected.notes, *([detected.family.note] if detected.family.note else []))
    changes += model.origin.changes
    model.origin = make_origin(f"{detected.family.label}: {source}", detected, config, facts, declared, changes)
    return model


def from_shapes(detected: Detected) -> Declared:
    """What the shapes of a family tell that our own, joined ones no longer do: Google's kernels keep the heads apart."""
    if not detected.family.name.startswith("google"):
        return Declared()
    query = next((tensor for name, tensor in detected.tensors.items() if name.endswith("query/kernel")), None)
    if query is None or query.ndim != 3:
        return Declared()
    return declare("the file's own shapes", {"heads": query.shape[1]})


def _from_name(detected: Detected, name: str) -> Declared:
    """What a timm architecture's name tells and its tensors do not; files are most often called after it."""
    matches = [fields for word, fields in NAMED.items() if re.search(word, name)] if detected.family.name.startswith("timm") else []
    return declare(f"the name {name}", {key: value for fields in matches for key, value in fields.items()})


def fill(config: ModelConfig, mapped: Mapped, source: str) -> Classifier:
    """The model with the mapped tensors as its parameters, copied, in fp32."""
    if config.depth > len(mapped.tensors):
        raise WeightsError(f"{source} cannot hold {config.depth} blocks in {len(mapped.tensors)} tensors", "the file is damaged")
    model = shadow(config)
    check(mapped, model.state_dict(), source)
    tensors, changes = as_float32(model, {name: tensor.detach().cpu() for name, tensor in mapped.tensors.items()}, source)
    model.load_state_dict({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, assign=True)
    model.origin = dataclasses.replace(model.origin, changes=changes)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    return model.eval()


def make_origin(
    source: str, detected: Detected, config: ModelConfig, facts: dict[str, Any], declared: Declared, changes: tuple[str, ...] = ()
) -> Origin:
    """Known where the source or the user says so; else the family's convention, marked assumed."""
    usual, why = PREPROCESS[detected.family.preprocess], f"usual for {detected.family.label}"
    name_of_source = source.removeprefix(detected.family.label).lower()
    if detected.family.name in ("timm", "timm-backbone") and (hint := next((word for word in _HINTS if word in name_of_source), None)):
        usual, why = PREPROCESS[_HINTS[hint]], f"the name says {hint}"
    values: dict[str, Any] = {name: declared.origin.get(name) or assumed(value, why) for name, value in usual.items()}
    for name in ("mean", "std"):
        values[name] = dataclasses.replace(values[name], value=per_channel(values[name].value, config.channels))
    if "classes" in declared.origin:
        names = declared.origin["classes"]
        values["classes"] = fact(_named(tuple(names.value), config.classes), names.note)
    elif config.classes == 1000 and (imagenet := imagenet_names()):
        values["classes"] = assumed(imagenet, "1000 outputs: ImageNet-1k's names")
    elif not config.classes:
        values["classes"] = fact((), NO_HEAD)
    values |= facts
    return Origin(source=fact(source), changes=tuple(map(Change, changes)), **values)


def _named(names: tuple[str, ...], classes: int) -> tuple[str, ...]:
    if len(names) != classes:
        raise UsageError(f"{len(names)} class names for {classes} outputs", "give as many names as the head has outputs")
    return names


def imagenet_names() -> tuple[str, ...]:
    """ImageNet-1k's class names, from torchvision's file of nothing else: importing the library itself takes seconds. None without it."""
    library = importlib.util.find_spec("torchvision")
    file = Path(library.origin).parent / "models" / "_meta.py" if library and library.origin else None
    names = importlib.util.spec_from_file_location("imagenet_names", file) if file and file.is_file() else None
    if names is None or names.loader is None:
        return ()
    module = importlib.util.module_from_spec(names)
    names.loader.exec_module(module)
    return tuple(module._IMAGENET_CATEGORIES)
