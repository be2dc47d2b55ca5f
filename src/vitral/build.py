"""Config → module, for the ViT and its rivals: the only place that knows all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from vitral.base.errors import ConfigError, NotInstalledError, UsageError, VitralError
from vitral.config import ModelConfig
from vitral.model.classifier import Classifier
from vitral.presets.models import MODELS, model


def build(config: ModelConfig) -> Classifier:
    """The module that a config describes, freshly initialised."""
    return _BUILDERS[config.family](config)


def create(name: str, **changes: Any) -> Classifier:
    """A named model, freshly initialised: `create("b/16", classes=10, image_size=224)`; any ModelConfig field can be set."""
    return build(model(name, **changes))


def parameter_count(config: ModelConfig) -> int:
    return sum(parameter.numel() for parameter in shadow(config).parameters())


def models() -> dict[str, dict[str, Any]]:
    """Every named model with its size: parameters, image and patch size, width, depth, heads."""
    table: dict[str, dict[str, Any]] = {}
    for name, config in MODELS.items():
        if config.is_transformer and config.image_size[0] % config.patch_stride[0]:
            continue
        with contextlib.suppress(NotInstalledError):  # ResNets without torchvision
            table[name] = {
                "family": config.family,
                "parameters": parameter_count(config),
                "image_size": config.image_size,
                **{part: getattr(config, part) if config.is_transformer else None for part in ("patch_size", "width", "depth", "heads")},
            }
    return table


def shadow(config: ModelConfig) -> Classifier:
    """The module without numbers: names and shapes alone, on the meta device."""
    try:
        with torch.device("meta"), _Unfilled():
            return build(config)
    except (RuntimeError, OverflowError, TypeError) as error:  # sizes beyond what a tensor can have
        if isinstance(error, VitralError):
            raise
        reason = str(error).partition("\n")[0][:120]
        raise ConfigError(f"no model has these sizes ({reason})", "check width, classes, channels and patch size") from None


class _Unfilled(TorchFunctionMode):
    """Skips what fills meta tensors: it changes nothing there, yet makes torch import its compiler for seconds."""

    FILLING = frozenset({"normal_", "uniform_", "erfinv_", "mul_", "add_", "clamp_", "fill_", "zero_"})

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init" or getattr(func, "__name__", "") in self.FILLING:
            tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


def _vit(config: ModelConfig) -> Classifier:
    from vitral.model.vit import ViT

    return ViT(config)


def _hybrid(config: ModelConfig) -> Classifier:
    from vitral.rivals.hybrid import hybrid

    return hybrid(config)


def _cnn(config: ModelConfig) -> Classifier:
    from vitral.rivals.cnn import CNN

    return CNN(config)


def _resnet(config: ModelConfig) -> Classifier:
    from vitral.rivals.resnet import ResNet

    return ResNet(config)


def _own(_: ModelConfig) -> Classifier:
    raise UsageError(
        "this model is a module of somebody's own program: a config cannot build it",
        "in that program, safetensors.torch.load_model(module, …) reads its model.safetensors",
    )


_BUILDERS: dict[str, Callable[[ModelConfig], Classifier]] = {
    "vit": _vit,
    "hybrid": _hybrid,
    "cnn": _cnn,
    "resnet18": _resnet,
    "resnet50": _resnet,
    "resnet152": _resnet,
    "own": _own,
}
