"""Names → contenders: models made to fit the data, with the learning rates each may choose from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from torch.nn.modules.batchnorm import _BatchNorm

from vitral.base.errors import UsageError, one_of
from vitral.build import shadow
from vitral.config import ModelConfig
from vitral.cost.flops import forward_flops
from vitral.data.datasets import Data
from vitral.presets.models import MODELS, model
from vitral.presets.runs import SMALL_DATA
from vitral.study.protocol import Contender
from vitral.weights.load import load

LRS = (3e-4, 1e-3, 3e-3)
"""AdamW from scratch: half a decade apart, the same for every family."""
TUNING_LRS = {"all": (3e-5, 1e-4, 3e-4, 1e-3), "attention": (3e-5, 1e-4, 3e-4, 1e-3), "head": (1e-3, 3e-3, 1e-2, 3e-2)}
"""AdamW from weights, by what learns. One grid for all and attention: a rival without attention learns wholly beside such a ViT."""
LEARNS = {"all": "all parameters learn", "attention": "attention and head learn", "head": "the head learns"}

#                  width depth heads mlp   by the picture's larger side: up to 16, up to 96, above
VIT_SIZES = {
    "vit-small": ((32, 2, 2, 64), (128, 4, 2, 256), (96, 12, 3, 384)),
    "vit": ((64, 4, 4, 128), (256, 6, 4, 512), (192, 12, 3, 768)),
    "vit-large": ((128, 6, 4, 256), (384, 8, 6, 768), (384, 12, 6, 1536)),
}
HYBRID_SIZES = {"hybrid-small": (96, 3, 3, 192), "hybrid": (192, 6, 3, 384), "hybrid-large": (384, 8, 6, 768)}
SMALL_PICTURES = {**SMALL_DATA, "initialisation": "torch"}
"""PyTorch's start and positions of size 1, as in the reports. With the run's own start (positions of size 0.02) AdamW needs most of
a short budget to learn where a patch lies: digits, 20,000 samples, lr 3e-3, one seed, validation: 57.5 % against 94.7 %. On
CIFAR-10 it costs two points instead (500,000 samples, three seeds, validation: 74.1 against 72.1 %): one start for all is the safe one.
The hybrid, whose stem knows places, keeps the run's start: digits, 92.8 % against 88.4 % after 6,400 samples."""
TOKENS = (16, 64, 196)
"""Patches aimed at, for the same three ranges of sizes."""


def fitting_vit(name: str, size: tuple[int, int], channels: int, classes: int) -> ModelConfig:
    """A ViT for pictures of this size: for 32×32, patch 4 and the widths of `report-cifar`; for 224×224, ViT-Ti/16.

    Small pictures get the model family of the `cifar10` run (mean pooling, RMSNorm, normalised queries and keys), started as in the
    reports: the ViT a careful user would enter. The report's own plain ViT is there too, under its name `report-cifar`.
    """
    side = max(size)
    group = 0 if side <= 16 else 1 if side <= 96 else 2
    width, depth, heads, mlp = VIT_SIZES[name][group]
    common = math.gcd(*size)
    patches = [p for p in range(1, common + 1) if common % p == 0]
    # On a log scale; of two equally near, the larger patch: it is the cheaper one.
    patch = min(reversed(patches), key=lambda p: abs(math.log(size[0] * size[1] / p**2 / TOKENS[group])))
    config = ModelConfig(
        image_size=size, patch_size=(patch, patch), channels=channels, classes=classes, width=width, depth=depth, heads=heads, mlp_width=mlp
    )
    return dataclasses.replace(config, **SMALL_PICTURES) if group < 2 else config


def fit_model(name: str, size: tuple[int, int], channels: int, classes: int) -> ModelConfig:
    """The config of a named model on pictures of this kind."""
    if name in VIT_SIZES:
        return fitting_vit(name, size, channels, classes)
    if name in HYBRID_SIZES:
        width, depth, heads, mlp = HYBRID_SIZES[name]
        if max(size) <= 16:
            width, depth, heads, mlp = width // 3, depth, heads if (width // 3) % heads == 0 else 4, mlp // 3
        sizes = {"width": width, "depth": depth, "heads": heads, "mlp_width": mlp}
        return model("hybrid", image_size=size, channels=channels, classes=classes, **sizes, **(SMALL_DATA if max(size) <= 96 else {}))
    if name not in MODELS:
        raise one_of("model", name, [*VIT_SIZES, *HYBRID_SIZES, *MODELS])
    return model(name, image_size=size, channels=channels, classes=classes)


def describe(config: ModelConfig) -> str:
    """What stands in the table for a name that depends on the data."""
    if config.is_transformer:
        kind = "ViT" if config.family == "vit" else "hybrid: ResNet stem, then a ViT"
        patch = "×".join(map(str, config.patch_size))
        sizes = f"patch {patch}, {config.tokens} tokens, width {config.width}, depth {config.depth}, heads {config.heads}"
        norm = "RMSNorm" if config.norm == "rms" else "LayerNorm"
        return f"{kind} ({sizes}, MLP {config.mlp_width}, {norm}, {'class token' if config.pool == 'class' else config.pool + ' pooling'})"
    return {"cnn": "small CNN (three stages of two 3×3 convolutions, three linear layers)"}.get(
        config.family, f"torchvision's {config.family}"
    )


def has_batch_norm(config: ModelConfig) -> bool:
    """Whether a model is judged by statistics that it gathers while it learns."""
    return any(isinstance(module, _BatchNorm) for module in shadow(config).modules())


def make_contenders(
    names: Sequence[str],
    data: Data,
    *,
    lrs: Sequence[float] | None = None,
    weights: dict[str, str] | None = None,
    tune: str = "all",
    weights_size: tuple[int, int] | None = None,
) -> tuple[Contender, ...]:
    """One contender per name; `weights` maps names to what they start from (anything `vitral.load` takes).

    `tune` is for those that start from weights; where there is no attention to tune, everything learns, and the note says so.
    They keep the size their weights were trained at, unless `weights_size` gives another.
    """
    weights = weights or {}
    if tune != "all" and not weights:
        raise UsageError(f"--tune {tune} without weights would freeze random numbers", "give weights with --from, or leave --tune out")
    if unknown := next((name for name in weights if name not in names), None):
        raise UsageError(f"--from gives weights for {unknown}, which is not among the models", f"add it to --models, now {','.join(names)}")
    made = []
    for name in names:
        source = weights.get(name)
        if source is None:
            config, grid, learns = fit_model(name, data.image_size, data.channels, len(data.class_names)), tuple(lrs or LRS), "all"
        else:
            config = _config_of(source, len(data.class_names), weights_size)
            learns = "all" if tune == "attention" and not config.is_transformer else tune
            grid = tuple(lrs or TUNING_LRS[learns])
        if not len(data.validation) and len(grid) > 1:
            raise UsageError(
                f"{data.config.name} has no validation pictures to choose learning rates on", "set --validation 0.1, or give one with --lrs"
            )
        note = describe(config) + (f", from {source}, {LEARNS[learns]}" if source else "")
        made.append(Contender(name, config, forward_flops(config), source, learns, grid, config.family, note))
    return tuple(made)


def _config_of(source: str, classes: int, size: tuple[int, int] | None) -> ModelConfig:
    config = load(source).config
    return dataclasses.replace(config, classes=classes, image_size=size or config.image_size)
