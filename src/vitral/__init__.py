"""Vitral, the workbench for Vision Transformers: train one, bring one, look inside it, compare it.

Names are loaded when they are first used, so `import vitral` stays quick and light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitral.base.lazy import lazily
from vitral.base.version import __version__

if TYPE_CHECKING:
    from vitral import data, draw, look, presets, study
    from vitral.base.errors import ParityError, VitralError
    from vitral.build import create, models
    from vitral.config import DataConfig, ModelConfig, RunConfig, TrainConfig
    from vitral.data.images.preprocess import open_picture, transform
    from vitral.draw.heatmap import Heatmap
    from vitral.look.predict import predict
    from vitral.look.watch import watch
    from vitral.model.classifier import Classifier
    from vitral.model.tape import Tape
    from vitral.model.vit import ViT
    from vitral.train.evaluate import evaluate
    from vitral.train.fit import fit
    from vitral.train.scores import Evaluation
    from vitral.web.notebook import explore
    from vitral.weights.adopt import adopt
    from vitral.weights.checkpoint import save
    from vitral.weights.export import export
    from vitral.weights.load import load

__all__ = [
    "Classifier",
    "DataConfig",
    "Evaluation",
    "Heatmap",
    "ModelConfig",
    "ParityError",
    "RunConfig",
    "Tape",
    "TrainConfig",
    "ViT",
    "VitralError",
    "__version__",
    "adopt",
    "create",
    "data",
    "draw",
    "evaluate",
    "explore",
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

__getattr__, __dir__ = lazily(
    __name__,
    {
        "": ("data", "draw", "look", "presets", "study"),
        "base.errors": ("ParityError", "VitralError"),
        "build": ("create", "models"),
        "config": ("DataConfig", "ModelConfig", "RunConfig", "TrainConfig"),
        "data.images.preprocess": ("open_picture", "transform"),
        "draw.heatmap": ("Heatmap",),
        "look.predict": ("predict",),
        "look.watch": ("watch",),
        "model.classifier": ("Classifier",),
        "model.tape": ("Tape",),
        "model.vit": ("ViT",),
        "train.evaluate": ("evaluate",),
        "train.scores": ("Evaluation",),
        "train.fit": ("fit",),
        "weights.adopt": ("adopt",),
        "weights.checkpoint": ("save",),
        "weights.export": ("export",),
        "weights.load": ("load",),
        "web.notebook": ("explore",),
    },
)
