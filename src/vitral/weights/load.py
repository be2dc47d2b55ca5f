"""One door for all weights: a run folder, a folder or file of another library, or a name that a library owns.

load("runs/digits")                              what Vitral trained or saved
load("vit_tiny.safetensors", heads=3)            a file of any known family
load("timm:vit_base_patch16_224")                fetched by the library that owns it, then proved
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Any

from torch import nn

from vitral.base.errors import MissingError, UsageError, VitralError, WeightsError
from vitral.base.files import SETTINGS_LIMIT, read_json
from vitral.base.layout import CONFIG, WEIGHTS
from vitral.base.origin import OWN, fact, per_channel
from vitral.base.progress import say
from vitral.config import ModelConfig
from vitral.model.classifier import Classifier
from vitral.weights.assemble import assemble
from vitral.weights.checkpoint import load_checkpoint
from vitral.weights.declared import Declared, declare
from vitral.weights.family import preprocess_fields
from vitral.weights.keymap import listed
from vitral.weights.library_settings import of_preprocessor, of_timm_folder, of_transformers
from vitral.weights.named import LIBRARIES, build_without_weights, check_named, fetch
from vitral.weights.read import READERS, Contents, read_weights
from vitral.weights.resize import adapt
from vitral.weights.to_huggingface import MULTI_LABEL

CALLER = "set by the caller"
_PREPROCESSOR = "preprocessor_config.json"
INDEX = "model.safetensors.index.json"


def load(
    x: str | Path,
    *,
    preprocess: str | dict[str, Any] | None = None,
    classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    heads: int | None = None,
    activation: str | None = None,
    patch_size: int | tuple[int, int] | None = None,
    quiet: bool = False,
) -> Classifier:
    """The model of a run folder, of a weights file of any known family, or of timm:NAME, torchvision:NAME, hf:NAME; in eval mode.

    preprocess          how its pictures were prepared: "half", "imagenet", "clip", …, or a dict of mean, std, resize, crop, interpolation
    heads, activation   what a weights file cannot say
    classes, image_size, channels, patch_size   another number or size than the weights have: adapted, and stated in `origin.changes`
    quiet               say nothing of what is assumed about weights from elsewhere
    """
    if isinstance(x, nn.Module):
        raise UsageError(f"load takes a place or a name, not a live {type(x).__name__}", "use vitral.adopt(module)")
    if not isinstance(x, str | os.PathLike):
        raise UsageError(f"load takes a place or a name, not {type(x).__name__}", "give a run folder, a weights file or timm:NAME")
    fields = preprocess_fields(preprocess)
    declared = declare(CALLER, {"heads": heads, "activation": activation}, fields)
    model = _open(x, declared, declare(CALLER, {"image_size": image_size}), quiet)
    _check_finite(model, str(x))
    model.origin = dataclasses.replace(model.origin, **_fitting(fields, model.config))
    _check_consistent(model, heads, activation)
    return adapt(model, image_size=image_size, patch_size=patch_size, channels=channels, classes=classes)


def load_untrained(x: str) -> Classifier:
    """What can be had of the same without a network: of a library's name how the model is built, with random weights."""
    named = _named(x)
    return build_without_weights(*named) if named else load(x, quiet=True)


def _named(x: str | Path) -> tuple[str, str] | None:
    """(library, name) where x names weights that a library fetches."""
    library, _, name = str(x).partition(":")
    return (library, name) if library in LIBRARIES and name and not Path(x).exists() else None


def check_source(x: str | Path) -> None:
    """Refuse what cannot be loaded, before anything is read or fetched: nothing lies there, or the library has no such name."""
    if named := _named(x):
        with contextlib.suppress(ImportError):  # told when it is fetched
            check_named(*named)
        return
    path, library = Path(x), str(x).partition(":")[0]
    if library == OWN and not path.exists():
        raise MissingError(
            f"{x} was given by a program, and only that program has it",
            "give it again: vitral.fit(…, model=…); to go on from what it became: --from and the run's folder",
        )
    if not path.exists():
        raise MissingError(
            f"{path} does not exist",
            f"name a run folder, a file ({', '.join(READERS)}), or timm:NAME, torchvision:NAME, hf:NAME",
        )


def _open(x: str | Path, declared: Declared, hint: Declared, quiet: bool) -> Classifier:
    """`hint` is the picture size the caller wants: it counts for the file only where nothing else says it."""
    if named := _named(x):
        return fetch(*named, declared)
    check_source(x)
    path = Path(x)
    if path.name == WEIGHTS and (path.parent / CONFIG).is_file():
        path = path.parent
    if path.is_dir() and _ours(_described(path)):
        return load_checkpoint(path)
    contents, from_library = read_source(path)
    model = assemble(contents.tensors, path.name, declared.or_else(from_library).or_else(hint), contents.notes)
    model.origin = dataclasses.replace(model.origin, thresholds=_thresholds(path, model.config.classes))
    return model if quiet else announced(model)


def read_source(path: Path) -> tuple[Contents, Declared]:
    """The tensors of a file, or of a folder together with what it says beside them."""
    if not path.is_dir():
        return read_weights(path), Declared()
    described = _described(path)
    return _folder_tensors(path), Declared() if _ours(described) else _from_folder(path, described)


def _thresholds(path: Path, classes: int) -> tuple[float, ...]:
    """Of a transformers folder whose model gives several labels; without thresholds of its own each class counts from one half on."""
    described = _described(path) if path.is_dir() else {}
    if described.get("problem_type") != MULTI_LABEL:
        return ()
    stored = described.get("thresholds")
    return tuple(stored) if isinstance(stored, list) and len(stored) == classes else (0.5,) * classes


def _described(folder: Path) -> dict[str, Any]:
    described = read_json(folder / CONFIG, SETTINGS_LIMIT) if (folder / CONFIG).is_file() else {}
    if not isinstance(described, dict):
        raise WeightsError(f"{folder / CONFIG} is not an object", "name a folder of Vitral, transformers or timm")
    return described


def _ours(described: dict[str, Any]) -> bool:
    """Whether a config.json is Vitral's; one that is missing is left to the reader of checkpoints, who says what a folder needs."""
    return "model" in described or not described


def has_own_config(folder: Path) -> bool:
    """Whether a folder holds a config.json of Vitral's."""
    return "model" in _described(folder)


def announced(model: Classifier) -> Classifier:
    """Says, once and in a line, what was taken for granted about weights from elsewhere."""
    taken = [line.partition(" (assumed")[0] for line in model.origin.assumptions()]
    if taken:
        set_by = "to set: preprocess, heads, activation of vitral.load or vitral weights convert"
        say(f"{model.origin.source.value}; assumed: {', '.join(taken)} ({set_by})")
    return model


def _from_folder(folder: Path, described: dict[str, Any]) -> Declared:
    """What a transformers or timm folder says beside its weights."""
    try:
        if "pretrained_cfg" in described or "architecture" in described:
            return of_timm_folder(described)
        from_library = of_transformers(described)
        beside = folder / _PREPROCESSOR
        return from_library.or_else(of_preprocessor(read_json(beside, SETTINGS_LIMIT))) if beside.is_file() else from_library
    except VitralError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as error:
        raise WeightsError(
            f"the settings in {folder} are not as transformers or timm write them ({error})", "fetch the folder again"
        ) from None


def _folder_tensors(folder: Path) -> Contents:
    if (folder / INDEX).is_file():
        pieces = sorted(set(read_json(folder / INDEX).get("weight_map", {}).values()))
        if any(Path(piece).name != piece for piece in pieces):
            raise WeightsError(f"{folder / INDEX} names files outside its folder", "fetch the folder again")
        return Contents({key: tensor for piece in pieces for key, tensor in read_weights(folder / piece).tensors.items()})
    for name in (WEIGHTS, "pytorch_model.bin"):
        if (folder / name).is_file():
            return read_weights(folder / name)
    raise WeightsError(f"{folder} holds no weights", f"it should have {WEIGHTS} or pytorch_model.bin")


def _fitting(fields: dict[str, Any], config: ModelConfig) -> dict[str, Any]:
    """The caller's word on preprocessing for this model's channels."""
    return {name: fact(per_channel(value, config.channels) if name in ("mean", "std") else value, CALLER) for name, value in fields.items()}


def _check_finite(model: Classifier, where: str) -> None:
    """One NaN makes every answer NaN: refused here, where the parameter can still be named."""
    broken = [name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()]
    if broken:
        raise WeightsError(f"{where} holds NaN or infinity in {listed(broken, 1)}", "its training diverged or the file is damaged")


def _check_consistent(model: Classifier, heads: int | None, activation: str | None) -> None:
    """A folder of ours knows its heads and activation: a contradiction is the caller's mistake."""
    for name, value in (("heads", heads), ("activation", activation)):
        if value is not None and model.config.is_transformer and getattr(model.config, name) != value:
            raise UsageError(f"{name} = {value}, but these weights have {getattr(model.config, name)}", f"leave {name} out")
