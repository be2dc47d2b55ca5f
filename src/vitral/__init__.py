"""Vitral, the workbench for Vision Transformers: train one, bring one, look inside it, compare it.

Names are loaded when they are first used, so `import vitral` stays quick and light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vitral.base.version import __version__

if TYPE_CHECKING:
    from vitral import data, draw, look, presets, study
    from vitral.base.errors import ParityError, VitralError
    from vitral.build import create, models
    from vitral.config import DataConfig, ModelConfig, RunConfig, TrainConfig
    from vitral.data.preprocess import open_picture, transform
    from vitral.look.predict import predict
    from vitral.look.watch import watch
    from vitral.train.engine import fit
    from vitral.weights.adopt import adopt
    from vitral.weights.checkpoint import save
    from vitral.weights.export import export
    from vitral.weights.load import load

__all__ = [
    "DataConfig",
    "ModelConfig",
    "ParityError",
    "RunConfig",
    "TrainConfig",
    "VitralError",
    "__version__",
    "adopt",
    "create",
    "data",
    "draw",
    "export",
    "fit",
    "load",
    "look",
    "models",
    "open_picture",
    "predict",
    "presets",
    "save",
    "study",
    "transform",
    "watch",
]

_HOMES = {
    "DataConfig": "config",
    "ModelConfig": "config",
    "ParityError": "base.errors",
    "RunConfig": "config",
    "TrainConfig": "config",
    "VitralError": "base.errors",
    "adopt": "weights.adopt",
    "create": "build",
    "export": "weights.export",
    "fit": "train.engine",
    "load": "weights.load",
    "models": "build",
    "open_picture": "data.preprocess",
    "predict": "look.predict",
    "save": "weights.checkpoint",
    "transform": "data.preprocess",
    "watch": "look.watch",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'vitral' has no attribute {name!r}")
    home = importlib.import_module(f"vitral.{_HOMES.get(name, name)}")
    globals()[name] = value = getattr(home, name) if name in _HOMES else home
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
