"""Named models: size/patch → ModelConfig, as a table.

model("b/16")            ViT-B/16 of the paper
model("s/4", image_size=(32, 32), classes=10)
model("report-cifar")    the 3,195,146-parameter ViT of report R2
"""

from __future__ import annotations

import dataclasses
from typing import Any

from vitral.base.errors import one_of
from vitral.config import ModelConfig

#        width depth heads mlp
SIZES = {
    "ti": (192, 12, 3, 768),
    "s": (384, 12, 6, 1536),
    "b": (768, 12, 12, 3072),
    "l": (1024, 24, 16, 4096),
    "h": (1280, 32, 16, 5120),
}
PATCHES = (2, 4, 8, 14, 16, 32)

SMALL = ModelConfig(image_size=(32, 32), patch_size=(4, 4), classes=10)

NAMED: dict[str, ModelConfig] = {
    # One tiny real model for tests and first steps.
    "tiny": dataclasses.replace(SMALL, width=48, depth=2, heads=3, mlp_width=96),
    # scikit-learn's 8×8 digits: 16 patches of 2×2.
    "digits": ModelConfig(image_size=(8, 8), patch_size=(2, 2), channels=1, classes=10, width=96, depth=4, heads=4, mlp_width=192),
    # R0: 32×32, patch 4, width 32, 4 blocks, 8 heads; the MLP's width is not given there, 4 × width is the paper's rule.
    "report-mnist": dataclasses.replace(SMALL, channels=1, width=32, depth=4, heads=8, mlp_width=128, initialisation="torch"),
    "report-cifar-small": dataclasses.replace(SMALL, width=32, depth=4, heads=8, mlp_width=128, initialisation="torch"),
    # R2: exactly 3,195,146 parameters.
    "report-cifar": dataclasses.replace(
        SMALL, width=256, depth=6, heads=8, mlp_width=512, dropout=0.2, norm_epsilon=1e-5, initialisation="torch"
    ),
    "cnn": ModelConfig(family="cnn", image_size=(32, 32), classes=10, width=32),
    # R0 speaks of a CNN with as many parameters as its MNIST model (53,866): R2's at width 3 has 52,180.
    "report-mnist-cnn": ModelConfig(family="cnn", image_size=(32, 32), channels=1, classes=10, width=3),
    "resnet18": ModelConfig(family="resnet18"),
    "resnet50": ModelConfig(family="resnet50"),
    "resnet152": ModelConfig(family="resnet152"),
    "hybrid": ModelConfig(family="hybrid", image_size=(32, 32), patch_size=(1, 1), classes=10, width=192, depth=6, heads=3, mlp_width=384),
}

MODELS: dict[str, ModelConfig] = {
    **{
        f"{size}/{patch}": ModelConfig(patch_size=(patch, patch), width=width, depth=depth, heads=heads, mlp_width=mlp)
        for size, (width, depth, heads, mlp) in SIZES.items()
        for patch in PATCHES
    },
    **NAMED,
}


def model(name: str, **changes: Any) -> ModelConfig:
    """The config of a named model, with any field replaced; `image_size=224` and `patch_size=4` are understood."""
    if name not in MODELS:
        raise one_of("model", name, MODELS)
    fields = {field.name for field in dataclasses.fields(ModelConfig)}
    if unknown := next((key for key in changes if key not in fields), None):
        raise one_of("model setting", unknown, sorted(fields))
    for key in ("image_size", "patch_size", "stride"):
        if isinstance(changes.get(key), int):
            changes[key] = (changes[key], changes[key])
    return dataclasses.replace(MODELS[name], **changes)
