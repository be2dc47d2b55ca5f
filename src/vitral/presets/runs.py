"""Named runs: name → RunConfig. Each is a starting point, read once when a run is asked for; every field can be replaced.

A model here leaves image size, channels and classes open: they are the data's, or the weights'.

`report-…` are the recipes of the source reports, unchanged; what they leave open is chosen here and said in a comment.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from vitral.base.errors import one_of
from vitral.config import DataConfig, ModelConfig, PretrainConfig, RunConfig, TrainConfig
from vitral.presets.models import model

# What makes a ViT learn from little data: RMSNorm, normalised queries and keys, no biases in attention, residual branches that
# start at zero, and the mean of the patches instead of a class token.
SMALL_DATA: dict[str, Any] = {
    "norm": "rms",
    "qk_norm": True,
    "qkv_bias": False,
    "initialisation": "zero",
    "pool": "mean",
    "class_token": False,
}
# Overlapping 4×4 patches at stride 2: 256 tokens, 5.3 M parameters. Rotary positions learn faster than learned ones here: after 26
# epochs 94.1 against 91.9 % on validation (docs/LOG.md).
_CIFAR_MODEL = ModelConfig(
    patch_size=(4, 4),
    stride=(2, 2),
    width=256,
    depth=8,
    heads=4,
    mlp_width=768,
    positions="rotary",
    drop_path=0.1,
    **SMALL_DATA,
).opened()
_MUON = TrainConfig(
    epochs=100,
    batch_size=512,
    optimizer="muon",
    lr=0.02,
    adam_lr=2e-3,
    weight_decay=0.05,
    betas=(0.9, 0.95),
    schedule="linear",
    warmup=0.03,
    clip=None,
    label_smoothing=0.1,
    mixing_off=0.12,
    ema=0.99,
    evaluate_every=5,
)

# With a class token, so that a first look shows where it looks; on validation it does as well as the mean (docs/LOG.md).
DIGITS = RunConfig(
    name="digits",
    model=model("digits", **{**SMALL_DATA, "pool": "class", "class_token": True}).opened(),
    data=DataConfig(name="digits", augment="light"),
    train=dataclasses.replace(_MUON, epochs=50, batch_size=128, mixing_off=0.0, evaluate_every=5),
)


def _on_32_pixels(name: str) -> ModelConfig:
    """Report R0 resizes MNIST's 28 × 28 pixels to 32 × 32."""
    return dataclasses.replace(model(name).opened(), image_size=(32, 32))


# R0. Given: model, batch 64, 20 epochs, cosine from 1e-3, translation ≤ 5 %. Not given, chosen here: AdamW with the PyTorch
# default decay 0.01, no warm-up, no dropout, MLP of 4 × width, the last weights, 10 % of the training pictures for validation.
_REPORT_SMALL = TrainConfig(epochs=20, batch_size=64, lr=1e-3, weight_decay=0.01, warmup=0.0, clip=None, schedule="cosine")
_REPORT_MNIST = RunConfig("report-mnist", _on_32_pixels("report-mnist"), DataConfig(name="mnist", augment="light"), _REPORT_SMALL)
_REPORT_MNIST_CNN = dataclasses.replace(_REPORT_MNIST, name="report-mnist-cnn", model=_on_32_pixels("report-mnist-cnn"))
_REPORT_CIFAR_SMALL = RunConfig(
    "report-cifar-small", model("report-cifar-small").opened(), DataConfig(name="cifar10", augment="light"), _REPORT_SMALL
)
# R0's small model (54 k parameters), our recipe: few parameters need little regularisation, so it is augmented lightly, trained longer.
_REPORT_CIFAR_SMALL_OURS = RunConfig(
    "report-cifar-small-ours",
    model("report-cifar-small", initialisation="zero").opened(),
    DataConfig(name="cifar10", augment="standard"),
    dataclasses.replace(_MUON, epochs=200, label_smoothing=0.0, ema=0.999),
)

# R2. Given: model, lr 3e-4, batch 128, 180 epochs, 45 k / 5 k pictures. From the tutorial it appears to follow: AdamW, × 0.1 at
# epochs 100 and 150, flip and resized crop, the weights that are best on validation, gradients clipped at 1.
_REPORT_CIFAR = RunConfig(
    "report-cifar",
    model("report-cifar").opened(),
    DataConfig(name="cifar10", augment="resized-crop", validation=0.1),
    TrainConfig(
        epochs=180,
        batch_size=128,
        lr=3e-4,
        weight_decay=0.01,
        schedule="step",
        milestones=(100 / 180, 150 / 180),
        decay=0.1,
        warmup=0.0,
        clip=1.0,
        keep="best",
    ),
)
_REPORT_CIFAR_CNN = dataclasses.replace(_REPORT_CIFAR, name="report-cifar-cnn", model=model("cnn").opened())
# R2's architecture, our recipe: same patches, width, depth, class token and head. Dropout gives way to drop path and mixing.
_REPORT_CIFAR_OURS = RunConfig(
    "report-cifar-ours",
    model("report-cifar", dropout=0.0, drop_path=0.1, initialisation="zero").opened(),
    DataConfig(name="cifar10", augment="strong"),
    dataclasses.replace(_MUON, epochs=200, ema=0.999),
)

# Half of the patches is left out for three quarters of the run: overlapping as they are, the other half still shows 94 % of the pixels.
# With the settings chosen (stage = choose), it learns from all training pictures: `--validation 0.1` sets some aside again.
CIFAR10 = RunConfig(
    "cifar10",
    _CIFAR_MODEL,
    DataConfig(name="cifar10", augment="strong", validation=0.0),
    dataclasses.replace(_MUON, token_drop=0.5, token_drop_until=0.75),
)
_CIFAR10_FAST = dataclasses.replace(
    CIFAR10,
    name="cifar10-fast",
    train=dataclasses.replace(CIFAR10.train, epochs=26),
    model=dataclasses.replace(_CIFAR_MODEL, drop_path=0.05),
)
# Of 300 epochs with a drop path of 0.1 the last 50 were learnt by heart: validation stood still while training accuracy rose (docs/LOG.md).
# So more is dropped, and pictures are mixed almost to the end.
_CIFAR10_BEST = dataclasses.replace(
    CIFAR10,
    name="cifar10-best",
    train=dataclasses.replace(CIFAR10.train, epochs=400, ema=0.999, mixing_off=0.05, evaluate_every=10),
    model=dataclasses.replace(_CIFAR_MODEL, drop_path=0.15),
)

MNIST = RunConfig(
    "mnist",
    ModelConfig(
        patch_size=(4, 4),
        stride=(2, 2),
        width=128,
        depth=6,
        heads=4,
        mlp_width=384,
        drop_path=0.1,
        **SMALL_DATA,
    ).opened(),
    DataConfig(name="mnist", augment="standard", cutmix=0.3, validation=0.0),
    dataclasses.replace(_MUON, epochs=60, batch_size=512, mixing_off=0.2),
)

# Fine-tuning: weights by name or file with --from; the model, its size and its normalisation come from them.
_FINETUNE = RunConfig(
    "finetune",
    model("ti/16", drop_path=0.1).opened(),
    DataConfig(name="folder:photos", augment="standard"),
    TrainConfig(
        epochs=20,
        batch_size=64,
        lr=2e-4,
        weight_decay=0.05,
        layer_decay=0.75,
        warmup=0.1,
        clip=1.0,
        label_smoothing=0.1,
        ema=0.99,
        keep="last",
    ),
    weights="timm:vit_tiny_patch16_224",
)
# Squashed, not cropped, pictures keep their borders.
FLOWERS = dataclasses.replace(
    _FINETUNE,
    name="flowers102",
    data=DataConfig(name="flowers102", augment="resized-crop", resize="squash"),
    train=dataclasses.replace(_FINETUNE.train, epochs=12),
)
_CIFAR10_FINETUNE = dataclasses.replace(
    _FINETUNE,
    name="cifar10-finetune",
    data=DataConfig(name="cifar10", augment="strong", validation=0.0),
    train=dataclasses.replace(_FINETUNE.train, epochs=15, batch_size=512, lr=5e-4, mixing_off=0.2),
)

# ImageNet-1k by the recipe of big_vision's `configs/vit_s16_i1k.py` (Beyer, Zhai and Kolesnikov, 2022), which names 76.5 % after 90 epochs:
# batch 1,024, lr 1e-3 with 10,000 steps of warm-up, then a cosine, decay 1e-4 a step (0.1 × the lr here), gradients clipped at 1,
# sine/cosine positions, the mean of the patches, a tanh layer before the head, RandAugment, MixUp on every batch. Not the same here: MixUp
# draws from Beta(0.8, 0.8) (0.2 there), RandAugment has magnitude 9 (10 there), and there 1 % of the pictures is kept for validation.
# It has not been run on ImageNet; docs/guide/train.md tells how the shards are made.
_IMAGENET = RunConfig(
    "imagenet",
    model("s/16", pool="mean", class_token=False, positions="sincos", head_hidden=384).opened(),
    DataConfig(name="webdataset:imagenet", augment="randaugment", mixup=1.0, workers=8),
    TrainConfig(
        epochs=90,
        batch_size=1024,
        lr=1e-3,
        weight_decay=0.1,
        schedule="cosine",
        warmup=10_000 / (90 * 1_281_167 / 1024),
        clip=1.0,
    ),
)

# ---- without labels ------------------------------------------------------------------------------------------------------------

# A quarter of the overlapping patches of each view is shown, half of them at the end: views are cheap then, and hiding makes them differ.
_PRETRAIN = TrainConfig(
    epochs=100,
    batch_size=256,
    optimizer="adamw",
    lr=2e-3,
    weight_decay=0.05,
    betas=(0.9, 0.95),
    schedule="cosine",
    warmup=0.05,
    clip=1.0,
    final_lr=0.01,
    ema=0.999,
    token_drop=0.75,
    token_drop_until=0.85,
    token_drop_after=0.5,
    test=False,
    evaluate_every=5,
)


def without_labels(name: str, **changes: Any) -> DataConfig:
    return DataConfig(name=name, augment="none", split_by="chance", **changes)


# Muon is reported to cost LeJEPA points; here, after 30 epochs of 40,000 pictures, the linear probe has 86.1 % with it, and with AdamW
# 72.9 after 37 (docs/LOG.md).
_PRETRAIN_CIFAR10 = RunConfig(
    "pretrain-cifar10",
    dataclasses.replace(_CIFAR_MODEL, drop_path=0.05),
    without_labels("cifar10"),
    dataclasses.replace(_PRETRAIN, optimizer="muon", lr=0.01, adam_lr=2e-3),
    pretrain=PretrainConfig(),
)
_WITHOUT_LABELS: dict[str, Any] = {**SMALL_DATA, "initialisation": "torch", "pool": "class+mean", "class_token": True}
# Few steps on small pictures: positions must be there from the start (`torch`: of size 1). From `zero`, where they are 0.02, the probe has
# 86 instead of 98 %; with the mean of the patches or the class token alone 97 % (docs/LOG.md). Digits are not mirrored, and hardly cropped.
_PRETRAIN_DIGITS = RunConfig(
    "pretrain-digits",
    model("digits", **_WITHOUT_LABELS).opened(),
    without_labels("digits"),
    dataclasses.replace(_PRETRAIN, epochs=40, batch_size=128, token_drop=0.0, token_drop_after=0.0, ema=0.99, evaluate_every=5),
    pretrain=PretrainConfig(
        global_views=2, local_views=0, global_scale=(0.6, 1.0), colour=0.0, blur=0.0, solarise=0.0, turn=10.0,
        projection=32, projection_hidden=256, directions=128,
    ),
)  # fmt: skip
# Class token and mean here too: on 432 photographs of flowers the probe has 23.0 %, of the mean alone 19.0 (pixels 19.0, untrained 18.4).
# With rotary positions the start itself makes no difference (docs/LOG.md).
_PRETRAIN_PHOTOS = RunConfig(
    "pretrain-photos",
    dataclasses.replace(
        model("ti/16", **_WITHOUT_LABELS, positions="rotary", drop_path=0.05).opened(), image_size=(96, 96), patch_size=(8, 8)
    ),
    without_labels("folder:photos", on_bad_image="skip"),
    dataclasses.replace(_PRETRAIN, batch_size=128),
    pretrain=PretrainConfig(blur=0.5),
)

# What the other methods need on digits, found on training pictures (docs/LOG.md). Both learn sooner with Muon, which is not LeJEPA's.
# dino: a few hundred steps need a teacher that follows sooner. mae: of 2 × 2 pixels mean and spread are most of what there is to rebuild,
# half of 16 patches is enough to hide, and pictures as they are teach more than cropped and turned ones; its steps are cheap.
_SOONER: dict[str, Any] = {"optimizer": "muon", "lr": 0.02, "adam_lr": 2e-3}
_DIGITS_BY_METHOD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dino": (_SOONER, {"teacher_momentum": 0.99}),
    "mae": (
        {**_SOONER, "epochs": 75, "batch_size": 64},
        {"hidden": 0.5, "normalised_pixels": False, "decoder_width": 64, "turn": 0.0, "global_scale": (0.9, 1.0)},
    ),
}


def pretraining(data: str, method: Literal["lejepa", "dino", "mae"] = "lejepa") -> RunConfig:
    """How a data set is pre-trained on: digits as they were tried out, sets of small pictures like CIFAR-10, the rest as photographs."""
    small = dict.fromkeys(("cifar10", "cifar100", "tinyimagenet32", "mnist", "fashion-mnist"), _PRETRAIN_CIFAR10)
    base = {"digits": _PRETRAIN_DIGITS, **small}.get(data, _PRETRAIN_PHOTOS)
    name = base.name if data == base.data.name else "pretrain"
    assert base.pretrain is not None
    pretrain, train = dataclasses.replace(base.pretrain, method=method), base.train
    if method == "mae":  # one view, hardly changed: what is hidden makes it hard, and the method hides patches itself
        train = dataclasses.replace(train, token_drop=0.0, token_drop_after=0.0)
        plain = {"colour": 0.0, "blur": 0.0, "solarise": 0.0, "global_scale": max(pretrain.global_scale, (0.35, 1.0))}
        pretrain = dataclasses.replace(pretrain, global_views=1, local_views=0, **plain)
    if data == "digits" and method in _DIGITS_BY_METHOD:
        of_train, of_method = _DIGITS_BY_METHOD[method]
        train, pretrain = dataclasses.replace(train, **of_train), dataclasses.replace(pretrain, **of_method)
    return dataclasses.replace(base, name=name, data=dataclasses.replace(base.data, name=data), train=train, pretrain=pretrain)


RUNS: dict[str, RunConfig] = {
    config.name: config
    for config in (
        DIGITS,
        MNIST,
        CIFAR10,
        _CIFAR10_FAST,
        _CIFAR10_BEST,
        _FINETUNE,
        FLOWERS,
        _CIFAR10_FINETUNE,
        _IMAGENET,
        _REPORT_MNIST,
        _REPORT_MNIST_CNN,
        _REPORT_CIFAR_SMALL,
        _REPORT_CIFAR_SMALL_OURS,
        _REPORT_CIFAR,
        _REPORT_CIFAR_CNN,
        _REPORT_CIFAR_OURS,
        _PRETRAIN_DIGITS,
        _PRETRAIN_CIFAR10,
        _PRETRAIN_PHOTOS,
    )
}


def run(name: str, /, **changes: Any) -> RunConfig:
    """A named run; `changes` replace fields of its data, train or top level, whichever has the name."""
    if name not in RUNS:
        raise one_of("run", name, RUNS)
    return change(RUNS[name], **changes)


def change(config: RunConfig, **changes: Any) -> RunConfig:
    """`config` with fields replaced, wherever in it they live; model fields go in as `model=ModelConfig`."""
    parts: dict[str, dict[str, Any]] = {"data": {}, "train": {}, "": {}}
    names = {
        part: {f.name for f in dataclasses.fields(kind)} for part, kind in (("", RunConfig), ("data", DataConfig), ("train", TrainConfig))
    }
    for key, value in changes.items():
        part = next((part for part in ("", "train", "data") if key in names[part]), None)
        if part is None:
            raise one_of("run setting", key, sorted(set().union(*names.values())))
        parts[part][key] = value
    return dataclasses.replace(
        config,
        **{part: dataclasses.replace(getattr(config, part), **parts[part]) for part in ("data", "train") if parts[part]},
        **parts[""],
    )
