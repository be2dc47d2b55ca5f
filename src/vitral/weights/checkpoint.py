"""A model as a folder: model.safetensors + config.json. The folder rebuilds its model alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from safetensors.torch import save as to_bytes

from vitral.base import manifest
from vitral.base.errors import WeightsError
from vitral.base.files import SETTINGS_LIMIT, make_folder, read_json, write_atomic, write_json
from vitral.base.layout import CONFIG, WEIGHTS
from vitral.base.origin import Origin
from vitral.build import shadow
from vitral.config import ModelConfig, from_dict, to_dict
from vitral.model.classifier import Classifier
from vitral.rivals.own_module import OwnModule
from vitral.weights.read import read_weights


def save(model: Classifier, folder: str | Path) -> Path:
    """Write the model into `folder`: its weights, its config and its origin."""
    model = getattr(model, "_orig_mod", model)
    folder = Path(folder)
    with manifest.vouching(make_folder(folder), WEIGHTS, CONFIG):
        write_weights(folder / WEIGHTS, model)
        write_json(folder / CONFIG, {"model": to_dict(model.config), "origin": model.origin.to_dict()})
    return folder


def write_weights(path: Path, model: Classifier) -> None:
    module = model.module if isinstance(model, OwnModule) else model
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    write_atomic(path, to_bytes(tensors, metadata={"format": "vitral"}))


def load_checkpoint(folder: str | Path) -> Classifier:
    """The model of a folder that `save` or a training wrote, on the CPU, in eval mode."""
    folder = Path(folder)
    if not (folder / WEIGHTS).is_file():
        unfinished = (folder / CONFIG).is_file()
        hint = (
            f"the run did not finish: vitral train or pretrain … --out {folder} --resume"
            if unfinished
            else "name a folder that vitral.save or vitral train wrote"
        )
        raise WeightsError(f"{folder} holds no {WEIGHTS}", hint)
    manifest.check(folder, (CONFIG, WEIGHTS))
    config, origin = read_description(folder)
    # Cloned: tensors mapped from a file are aligned to 8 bytes, and matrix products then differ in the last bit.
    tensors = {name: tensor.clone() for name, tensor in read_weights(folder / WEIGHTS).tensors.items()}
    if config.is_transformer and config.depth > len(tensors):
        raise WeightsError(
            f"{folder / CONFIG} describes {config.depth:,} blocks, {WEIGHTS} has {len(tensors)} tensors",
            "the two files do not belong together",
        )
    model = shadow(config)
    _check_fit(model, tensors, str(folder / WEIGHTS))
    tensors, changes = as_float32(model, tensors, str(folder / WEIGHTS))
    model.load_state_dict(tensors, assign=True)
    model.folder = folder
    model.origin = dataclasses.replace(origin, changes=(*origin.changes, *changes))
    return model.eval()


def read_description(folder: Path) -> tuple[ModelConfig, Origin]:
    """What such a folder says of its model, beside the weights."""
    described = read_json(folder / CONFIG, SETTINGS_LIMIT)
    if not isinstance(described, dict) or "model" not in described:
        raise WeightsError(f"{folder / CONFIG} describes no model", "name a folder that vitral.save or vitral train wrote")
    config = from_dict(ModelConfig, described["model"], f"{folder / CONFIG}: model")
    origin = Origin.from_dict(described.get("origin", {}))
    if not origin.data and isinstance(described.get("data"), dict):  # a run says it beside the origin
        origin = dataclasses.replace(origin, data=described["data"])
    return config, origin


def as_float32(model: Classifier, tensors: dict[str, torch.Tensor], where: str) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """The tensors in the precision that models compute in, and what was changed for it; what is no number with a point is refused."""
    expected = {name for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    if whole := next((name for name in expected if name in tensors and not tensors[name].is_floating_point()), None):
        kind = str(tensors[whole].dtype).removeprefix("torch.")
        raise WeightsError(f"{where}: {whole} holds {kind}, not floating-point numbers", "save the model with its weights as float32")
    others = sorted({str(tensors[name].dtype).removeprefix("torch.") for name in expected & tensors.keys()} - {"float32"})
    cast = {name: tensor.to(torch.float32) if name in expected else tensor for name, tensor in tensors.items()}
    return cast, (f"weights taken from {' and '.join(others)} to float32",) if others else ()


def _check_fit(model: Classifier, tensors: dict[str, torch.Tensor], where: str) -> None:
    """Nothing missing, nothing left, every shape right: else one line that names the first few."""
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    problems = [f"missing {name}" for name in expected if name not in shapes]
    problems += [f"unknown {name}" for name in shapes if name not in expected]
    problems += [
        f"{name} is {shapes[name]}, not {expected[name]}" for name in expected if name in shapes and shapes[name] != expected[name]
    ]
    if problems:
        more = f" and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise WeightsError(f"{where} does not fit its config: {'; '.join(problems[:4])}{more}", "the two files do not belong together")
