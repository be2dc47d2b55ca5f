"""Names → contenders: models made to fit the data, with the learning rates each may choose from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch.nn.modules.batchnorm import _BatchNorm

from vitral.base.errors import UsageError, one_of
from vitral.build import shadow
from vitral.config import ModelConfig
from vitral.cost.flops import forward_flops
from vitral.data.splits.open import Data
from vitral.presets.models import MODELS, model
from vitral.presets.runs import SMALL_DATA
from vitral.study.fight.protocol import Contender
from vitral.weights.load import load

LRS = {"adamw": (3e-4, 1e-3, 3e-3), "muon": (0.01, 0.02, 0.04), "sgd": (0.01, 0.03, 0.1)}
"""From scratch, by the optimizer, the same for every family: a beginning, which is widened while the best lies at its edge."""
TUNING_LRS = {
    "all": (3e-5, 1e-4, 3e-4, 1e-3),
    "attention": (3e-5, 1e-4, 3e-4, 1e-3),
    "head": (1e-3, 3e-3, 1e-2, 3e-2),
    "lora": (3e-4, 1e-3, 3e-3, 1e-2),
}
"""AdamW from weights, by what learns. One grid for all and attention: a rival without attention learns wholly beside such a ViT."""
LEARNS = {"all": "all parameters learn", "attention": "attention and head learn", "head": "the head learns", "lora": "LoRA and head learn"}

#                  width depth heads mlp   by the picture's larger side: up to 16, up to 96, above
VIT_SIZES = {
    "vit-small": ((32, 2, 2, 64), (128, 4, 2, 256), (96, 12, 3, 384)),
    "vit": ((64, 4, 4, 128), (256, 6, 4, 512), (192, 12, 3, 768)),
    "vit-large": ((128, 6, 4, 256), (384, 8, 6, 768), (384, 12, 6, 1536)),
}
HYBRID_SIZES = {"hybrid-small": (96, 3, 3, 192), "hybrid": (192, 6, 3, 384), "hybrid-large": (384, 8, 6, 768)}
SMALL_PICTURES: dict[str, Any] = {**SMALL_DATA, "initialisation": "torch"}
STARTS = {"vit": ("torch", "zero"), "hybrid": ("zero", "torch")}
"""No start is the best one everywhere, so each transformer on small pictures chooses on validation; the first where there is nothing to
choose on. PyTorch's (positions of size 1) against the run's own (positions of 0.02, branches at zero), a ViT under AdamW: digits,
20,000 samples, 94.7 against 57.5 %; CIFAR-10, 500,000 samples, 72.1 against 74.1 %. The hybrid, whose stem knows places: digits,
6,400 samples, 88.4 against 92.8 %."""
WIDEST = 4096
"""Of models that are made as wide as others are large."""
MATCHED = {"parameters": "parameters", "flops": "FLOPs"}
"""What a name such as cnn@parameters or vit@flops is made equal in, to the first model without such an ending."""
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


def check_model(name: str) -> None:
    """Refuse a name that no model has; vit@flops is a vit."""
    known = [*VIT_SIZES, *HYBRID_SIZES, *MODELS]
    if name.partition("@")[0] not in known:
        raise one_of("model", name, known)


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
    check_model(name)
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


def matched(config: ModelConfig, to: ModelConfig, what: str) -> ModelConfig:
    """The same kind of model, as wide as makes it equal to another in parameters or forward FLOPs, as nearly as whole heads allow."""
    if config.family not in ("vit", "hybrid", "cnn"):
        raise UsageError(f"{config.family} comes in one width and cannot be matched", f"match a vit, hybrid or cnn to it: vit@{what}")
    measure = forward_flops if what == "flops" else lambda made: sum(value.numel() for value in shadow(made).parameters())
    target, step = math.log(measure(to)), 4 * config.heads if config.is_transformer else 1
    ratio = config.mlp_width / config.width
    low, high = 1, WIDEST // step  # both grow with the width: find where it passes the target
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if math.log(measure(_as_wide(config, middle * step, ratio))) < target else (low, middle)
    around = [_as_wide(config, width * step, ratio) for width in (low - 1, low) if width > 0]
    return min(around, key=lambda made: abs(math.log(measure(made)) - target))


def _as_wide(config: ModelConfig, width: int, ratio: float) -> ModelConfig:
    return dataclasses.replace(config, width=width, **({"mlp_width": round(ratio * width)} if config.is_transformer else {}))


def make_contenders(
    names: Sequence[str],
    data: Data,
    *,
    lrs: Sequence[float] | None = None,
    weights: dict[str, str] | None = None,
    tune: str = "all",
    weights_size: tuple[int, int] | None = None,
    recipes: Mapping[str, dict[str, Any]] | None = None,
) -> tuple[Contender, ...]:
    """One contender per name (and recipe, of several); `weights` maps names to what they start from (anything `vitral.load` takes).

    `tune` is for those that start from weights; where there is no attention to tune, everything learns, and the note says so.
    They keep the size their weights were trained at, unless `weights_size` gives another.
    """
    weights, recipes = weights or {}, recipes or {"": {}}
    if tune != "all" and not weights:
        raise UsageError(f"--tune {tune} without weights would freeze random numbers", "give weights with --from, or leave --tune out")
    if unknown := next((name for name in weights if name not in names), None):
        raise UsageError(f"--from gives weights for {unknown}, which is not among the models", f"add it to --models, now {','.join(names)}")
    if (not len(data.validation)) and (lrs is None or len(lrs) > 1):
        raise UsageError(
            f"{data.config.name} has no validation pictures to choose learning rates on", "set --validation 0.1, or give one with --lrs"
        )
    configs = _configs(names, data, weights, weights_size)
    made = []
    for name in names:
        config, source = configs[name], weights.get(name)
        learns = "all" if source is None or (tune in ("attention", "lora") and not config.is_transformer) else tune
        starts = STARTS.get(config.family, ()) if source is None and config.initialisation in ("torch", "zero") else ()
        note = describe(config) + (f", from {source}, {LEARNS[learns]}" if source else "")
        for recipe, settings in recipes.items():
            optimizer = settings.get("optimizer", "adamw")
            grid = tuple(lrs or (LRS[optimizer] if source is None else tuning_lrs(optimizer, learns)))
            made.append(
                Contender(
                    f"{name} {recipe}" if len(recipes) > 1 else name,
                    config,
                    forward_flops(config),
                    source,
                    learns,
                    grid,
                    config.family,
                    f"{note}, {recipe} recipe" if len(recipes) > 1 else note,
                    name,
                    settings,
                    starts if lrs is None else starts[:1],
                    widens=lrs is None,
                )
            )
    return tuple(made)


def _configs(names: Sequence[str], data: Data, weights: Mapping[str, str], weights_size: tuple[int, int] | None) -> dict[str, ModelConfig]:
    """Name → config; those of `weights` as their files say, the others made for the data, with @ as large as the first without it."""
    given = (data.image_size, data.channels, len(data.class_names))
    made = {
        name: _config_of(weights[name], given[-1], weights_size) if name in weights else fit_model(name.partition("@")[0], *given)
        for name in names
    }
    first = next((name for name in names if "@" not in name), None)
    for name in names:
        plain, _, what = name.partition("@")
        if not what:
            continue
        if what not in MATCHED:
            raise one_of("size to match", what, list(MATCHED))
        if first is None:
            raise UsageError(f"{name} has no model to match", "name one without @ first, for example --models resnet18,vit@flops")
        if plain == first and first not in weights:
            raise UsageError(f"{name} would be {first} itself, which it is matched to", f"name another one first, or leave {name} out")
        if name in weights:
            raise UsageError(f"{name} cannot be made as large as {first}: its weights say how large it is", f"give --from {plain}=…")
        made[name] = matched(made[name], made[first], what)
    return made


def tuning_lrs(optimizer: str, learns: str) -> tuple[float, ...]:
    """From weights: Muon's are to AdamW's as they are from scratch."""
    return tuple(float(f"{lr * LRS[optimizer][1] / LRS['adamw'][1]:.2g}") for lr in TUNING_LRS[learns])


def _config_of(source: str, classes: int, size: tuple[int, int] | None) -> ModelConfig:
    config = load(source).config
    return dataclasses.replace(config, classes=classes, image_size=size or config.image_size)
