"""Names → contenders: models made to fit the data, recipes, ways of learning and varied settings, each as the run that its cells train."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from torch.nn.modules.batchnorm import _BatchNorm

from vitral.base.errors import ConfigError, UsageError, one_of
from vitral.base.settings import read_value, say_kind
from vitral.build import shadow
from vitral.config import TUNED, DataConfig, ModelConfig, RunConfig, TrainConfig
from vitral.cost.flops import forward_flops
from vitral.data.splits.open import Data
from vitral.presets.models import MODELS, model
from vitral.presets.runs import SMALL_DATA, pretraining
from vitral.study.fight.experiment import ALWAYS, DATA_SETTINGS, TEMPLATE, Contender
from vitral.weights.load import load

RECIPES: dict[str, dict[str, Any]] = {
    "plain": {"augment": "standard", "optimizer": "adamw", "schedule": "cosine", "warmup": 0.05},
    "strong": {
        "augment": "strong",
        "optimizer": "muon",
        "betas": (0.9, 0.95),
        "schedule": "linear",
        "warmup": 0.03,
        "clip": None,
        "label_smoothing": 0.1,
        "mixing_off": 0.12,
        "ema": 0.99,
    },
}
"""plain: what a first try looks like, AdamW and flips and shifts. strong: what the run `cifar10` does, Muon, mixing, smoothing, EMA."""
_EQUAL = {"validation": 0.1, "batch_size": 128, "weight_decay": 0.05, "warmup": 0.05, "threads": 1, "checkpoint_every": 30.0}
"""Settings of every contender, where nobody asks for others. With one thread, results do not depend on how many cells run at a time."""
_DECIDED = ("seed", "epochs", "max_seconds", "lr", "adam_lr", "keep", "test", "evaluate_every", "snapshots")
"""Settings of a training that the study itself decides, as it does those of the data that follow."""
_SPLITS = ("name", "stage", "split_by", "subset", "subset_seed")

LRS = {"adamw": (3e-4, 1e-3, 3e-3), "muon": (0.01, 0.02, 0.04), "sgd": (0.01, 0.03, 0.1)}
"""From scratch, by the optimizer, the same for every family: a beginning, which is widened while the best lies at its edge."""
_TUNING_LRS = {
    "all": (3e-5, 1e-4, 3e-4, 1e-3),
    "attention": (3e-5, 1e-4, 3e-4, 1e-3),
    "head": (1e-3, 3e-3, 1e-2, 3e-2),
    "lora": (3e-4, 1e-3, 3e-3, 1e-2),
}
"""AdamW from weights, by what learns. One grid for all and attention: a rival without attention learns wholly beside such a ViT."""
_LEARNS = {"all": "all parameters learn", "attention": "attention and head learn", "head": "the head learns", "lora": "LoRA and head learn"}

#                  width depth heads mlp   by the picture's larger side: up to 16, up to 96, above
_VIT_SIZES = {
    "vit-small": ((32, 2, 2, 64), (128, 4, 2, 256), (96, 12, 3, 384)),
    "vit": ((64, 4, 4, 128), (256, 6, 4, 512), (192, 12, 3, 768)),
    "vit-large": ((128, 6, 4, 256), (384, 8, 6, 768), (384, 12, 6, 1536)),
}
_HYBRID_SIZES = {"hybrid-small": (96, 3, 3, 192), "hybrid": (192, 6, 3, 384), "hybrid-large": (384, 8, 6, 768)}
_SMALL_PICTURES: dict[str, Any] = {**SMALL_DATA, "initialisation": "torch"}
_STARTS = {"vit": ("torch", "zero"), "hybrid": ("zero", "torch")}
"""No start is the best one everywhere, so each transformer on small pictures chooses on validation; the first where there is nothing to
choose on. PyTorch's (positions of size 1) against the run's own (positions of 0.02, branches at zero), a ViT under AdamW: digits,
20,000 samples, 94.7 against 57.5 %; CIFAR-10, 500,000 samples, 72.1 against 74.1 %. The hybrid, whose stem knows places: digits,
6,400 samples, 88.4 against 92.8 %."""
_WIDEST = 4096
"""Of models that are made as wide as others are large."""
_MATCHED = {"parameters": "parameters", "flops": "FLOPs"}
"""What a name such as cnn@parameters or vit@flops is made equal in, to the first model without such an ending."""
_TOKENS = (16, 64, 196)
"""Patches aimed at, for the same three ranges of sizes."""


def fitting_vit(name: str, size: tuple[int, int], channels: int, classes: int) -> ModelConfig:
    """A ViT for pictures of this size: for 32×32, patch 4 and the widths of `report-cifar`; for 224×224, ViT-Ti/16.

    Small pictures get the model family of the `cifar10` run (mean pooling, RMSNorm, normalised queries and keys), started as in the
    reports: the ViT a careful user would enter. The report's own plain ViT is there too, under its name `report-cifar`.
    """
    side = max(size)
    group = 0 if side <= 16 else 1 if side <= 96 else 2
    width, depth, heads, mlp = _VIT_SIZES[name][group]
    common = math.gcd(*size)
    patches = [p for p in range(1, common + 1) if common % p == 0]
    # On a log scale; of two equally near, the larger patch: it is the cheaper one.
    patch = min(reversed(patches), key=lambda p: abs(math.log(size[0] * size[1] / p**2 / _TOKENS[group])))
    config = ModelConfig(
        image_size=size, patch_size=(patch, patch), channels=channels, classes=classes, width=width, depth=depth, heads=heads, mlp_width=mlp
    )
    return dataclasses.replace(config, **_SMALL_PICTURES) if group < 2 else config


def check_model(name: str) -> None:
    """Refuse a name that no model has; vit@flops is a vit."""
    names = [*_VIT_SIZES, *_HYBRID_SIZES, *MODELS]
    if name.partition("@")[0] not in names:
        raise one_of("model", name, names)


def fit_model(name: str, size: tuple[int, int], channels: int, classes: int) -> ModelConfig:
    """The config of a named model on pictures of this kind."""
    if name in _VIT_SIZES:
        return fitting_vit(name, size, channels, classes)
    if name in _HYBRID_SIZES:
        width, depth, heads, mlp = _HYBRID_SIZES[name]
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
    low, high = 1, _WIDEST // step  # both grow with the width: find where it passes the target
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if math.log(measure(_as_wide(config, middle * step, ratio))) < target else (low, middle)
    around = [_as_wide(config, width * step, ratio) for width in (low - 1, low) if width > 0]
    return min(around, key=lambda made: abs(math.log(measure(made)) - target))


def _as_wide(config: ModelConfig, width: int, ratio: float) -> ModelConfig:
    return dataclasses.replace(config, width=width, **({"mlp_width": round(ratio * width)} if config.is_transformer else {}))


def templates(data: str, recipe: str = "plain", **settings: Any) -> dict[str, RunConfig]:
    """Recipe → the run that all contenders start from. `recipe`: `plain` or `plain,strong`; `settings`: fields of DataConfig and
    TrainConfig, which come before the recipe's own."""
    names = [name for part in recipe.split(",") if (name := part.strip())]
    if wrong := next((name for name in names if name not in RECIPES), None):
        raise one_of("recipe", wrong, list(RECIPES))
    if not names or len(set(names)) < len(names):
        raise UsageError(f"--recipe {recipe!r} names no recipe, or one twice", "use plain, strong or plain,strong")
    if decided := next((name for name in (*_DECIDED, *_SPLITS) if name in settings), None):
        raise UsageError(f"{decided} is decided by the study", f"leave {decided} out")
    return {name: _template(data, {**RECIPES[name], **settings}) for name in names}


def _template(data: str, settings: Mapping[str, Any]) -> RunConfig:
    of_data = {field.name for field in dataclasses.fields(DataConfig)}
    settings = {**_EQUAL, **ALWAYS, **settings}
    return RunConfig(
        name=TEMPLATE,
        data=DataConfig(name=data, **{name: value for name, value in settings.items() if name in of_data}),
        train=TrainConfig(**{name: value for name, value in settings.items() if name not in of_data}),
    )


def make_contenders(
    names: Sequence[str],
    opened: Data,
    recipes: Mapping[str, RunConfig],
    *,
    lrs: Sequence[float] | None = None,
    weights: Mapping[str, str] | None = None,
    weights_size: tuple[int, int] | None = None,
) -> tuple[Contender, ...]:
    """One contender per name (and recipe, of several: see `templates`); `weights` maps names to what they start from.

    The recipe's `tune` is for those that start from weights; where there is no attention to tune, everything learns, and the note says so.
    They keep the size their weights were trained at, unless `weights_size` gives another.
    """
    weights, tune = weights or {}, next(iter(recipes.values())).train.tune
    if tune != "all" and not weights:
        raise UsageError(f"--tune {tune} without weights would freeze random numbers", "give weights with --from, or leave --tune out")
    if unknown := next((name for name in weights if name not in names), None):
        raise UsageError(f"--from gives weights for {unknown}, which is not among the models", f"add it to --models, now {','.join(names)}")
    if (not len(opened.validation)) and (lrs is None or len(lrs) > 1):
        raise UsageError(
            f"{opened.config.name} has no validation pictures to choose learning rates on", "set --validation 0.1, or give one with --lrs"
        )
    configs = _configs(names, opened, weights, weights_size)
    made = []
    for name in names:
        config, source = configs[name], weights.get(name)
        learns = "all" if source is None or (tune in ("attention", "lora") and not config.is_transformer) else tune
        starts = _STARTS.get(config.family, ()) if source is None and config.initialisation in ("torch", "zero") else ()
        note = describe(config) + (f", from {source}, {_LEARNS[learns]}" if source else "")
        for recipe, template in recipes.items():
            train = dataclasses.replace(template.train, tune=learns)
            grid = lrs or (LRS[train.optimizer] if source is None else tuning_lrs(train.optimizer, learns))
            made.append(
                Contender(
                    name=f"{name} {recipe}" if len(recipes) > 1 else name,
                    run=dataclasses.replace(template, model=config, train=train, weights=source),
                    flops=forward_flops(config),
                    lrs=tuple(grid),
                    note=f"{note}, {recipe} recipe" if len(recipes) > 1 else note,
                    base=name,
                    starts=starts if lrs is None else starts[:1],
                    widens=lrs is None,
                )
            )
    return tuple(made)


def _configs(
    names: Sequence[str], opened: Data, weights: Mapping[str, str], weights_size: tuple[int, int] | None
) -> dict[str, ModelConfig]:
    """Name → config; those of `weights` as their files say, the others made for the data, with @ as large as the first without it."""
    of_data = (opened.image_size, opened.channels, len(opened.class_names))
    made = {
        name: _config_of(weights[name], of_data[-1], weights_size) if name in weights else fit_model(name.partition("@")[0], *of_data)
        for name in names
    }
    first = next((name for name in names if "@" not in name), None)
    for name in names:
        plain, _, what = name.partition("@")
        if not what:
            continue
        if what not in _MATCHED:
            raise one_of("size to match", what, list(_MATCHED))
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
    return tuple(float(f"{lr * LRS[optimizer][1] / LRS['adamw'][1]:.2g}") for lr in _TUNING_LRS[learns])


def _config_of(source: str, classes: int, size: tuple[int, int] | None) -> ModelConfig:
    config = load(source).config
    return dataclasses.replace(config, classes=classes, image_size=size or config.image_size)


# ---- ways of learning ---------------------------------------------------------------------------------------------------------------

METHODS = ("lejepa", "dino", "mae", "supervised", "untrained")
_METHOD_NOTES = {
    "lejepa": "views pulled together, embeddings kept Gaussian",
    "dino": "a student answers like its own EMA",
    "mae": "hidden patches rebuilt",
    "supervised": "the classes named, with labels",
    "untrained": "random weights, nothing learnt",
}
_TAKEN = (
    *("optimizer", "betas", "schedule", "warmup", "clip", "final_lr", "ema", "token_drop", "token_drop_until", "token_drop_after"),
    "evaluate_every",
)
"""What a method takes from its own run; batch size, weight decay and all else are the study's."""


def by_method(methods: Sequence[str], models: Sequence[Contender], settings: Mapping[str, Any]) -> tuple[Contender, ...]:
    """The one model as a contender of each method; `settings` are asked for, and come before a method's own."""
    if wrong := next((name for name in methods if name not in METHODS), None):
        raise one_of("method", wrong, METHODS)
    if len(models) != 1 or models[0].run.weights is not None:
        raise UsageError("--pretrain compares methods of one model, from scratch, with one recipe", "name one model, without --from")
    (model,) = models
    if not model.run.model.is_transformer:
        raise ConfigError(f"pre-training is for models with patches, not a {model.run.model.family}", "choose a ViT")
    return tuple(_contender(method, model, settings) for method in methods)


def _contender(method: str, model: Contender, settings: Mapping[str, Any]) -> Contender:
    note = f"{_METHOD_NOTES[method]}; linear probe of {model.note}"
    model = dataclasses.replace(model, name=method, note=note, base=method, probed=True)
    if method == "supervised":
        return model
    if method == "untrained":  # of its starts the best one is chosen, as for the others
        still = dataclasses.replace(model.run, train=dataclasses.replace(model.run.train, epochs=0.0))
        return dataclasses.replace(model, run=still, lrs=model.lrs[:1], widens=False)
    data = model.run.data
    own = pretraining(data.name, method)  # type: ignore[arg-type]
    asked = {name: value for name, value in settings.items() if name not in ("augment", "label_smoothing")}
    template = _template(data.name, {name: getattr(own.train, name) for name in _TAKEN} | asked)
    run = dataclasses.replace(
        model.run,
        data=dataclasses.replace(data, augment="none"),  # its views are its augmentation
        train=template.train,
        pretrain=own.pretrain,
    )
    return dataclasses.replace(model, run=run, lrs=LRS[run.train.optimizer] if model.widens else model.lrs)


# ---- one setting in several values --------------------------------------------------------------------------------------------------

_SETTINGS = (
    *DATA_SETTINGS,
    *(field.name for field in dataclasses.fields(TrainConfig) if field.name not in (*_DECIDED, "device", "threads", "tune")),
)
_KINDS = {name: hint for config in (DataConfig, TrainConfig, ModelConfig) for name, hint in typing.get_type_hints(config).items()}
_OF_THE_DATA = ("channels", "classes")
"""What a model is given as many of as the data have, whatever is asked for."""
_FIELDS = ("tune", *_SETTINGS, *(field.name for field in dataclasses.fields(ModelConfig)))


def read_varied(text: str) -> tuple[str, list[str]]:
    """(setting, values as written) of `norm_order=pre,post`, `pool=class,mean`, `patch_size=2,4,8`, `batch_size=64,512`: values that it can
    have."""
    field, sign, written = text.partition("=")
    field = field.strip()
    values = [value for part in written.split(",") if (value := part.strip())]
    if not sign or len(values) < 2:
        raise UsageError(f"--vary {text!r} is not a setting with two values or more", "use for example --vary norm_order=pre,post")
    if field not in _FIELDS:
        raise one_of("setting to vary", field, _FIELDS)
    if field in _OF_THE_DATA:
        raise UsageError(f"the data say how many {field} there are", "vary another setting")
    if float in typing.get_args(_KINDS[field]) and typing.get_origin(_KINDS[field]) is tuple:
        raise UsageError(f"{field} is several numbers, and a comma stands between values here", "vary another setting")
    if twice := next((value for value in values if values.count(value) > 1), None):
        raise UsageError(f"--vary {field} has {twice} twice", "name each value once")
    for value in values:
        if field in _SETTINGS:  # a model's settings are checked together, in the model that they change
            (DataConfig if field in DATA_SETTINGS else TrainConfig)(**{field: _value(field, value)})
        _value(field, value)
    return field, values


def vary_setting(contenders: Sequence[Contender], text: str) -> tuple[Contender, ...]:
    """Each contender in each of the values that `text` gives a setting."""
    field, values = read_varied(text)
    return tuple(_varied(contender, field, value) for contender in contenders for value in values)


def _varied(contender: Contender, field: str, written: str) -> Contender:
    value, run = _value(field, written), contender.run
    named: dict[str, Any] = {
        "name": f"{contender.name} {field}={written}",
        "note": f"{contender.note}, {field} {written}",
        "base": f"{contender.base} {field}={written}",
    }
    if field == "tune":
        if run.weights is None:
            raise UsageError(f"tune={written} without weights would freeze random numbers", "give weights with --from")
        named["lrs"] = tuning_lrs(run.train.optimizer, value) if contender.widens else contender.lrs
    if field in DATA_SETTINGS:
        return dataclasses.replace(contender, **named, run=dataclasses.replace(run, data=dataclasses.replace(run.data, **{field: value})))
    if field in ("tune", *_SETTINGS):
        return dataclasses.replace(contender, **named, run=dataclasses.replace(run, train=dataclasses.replace(run.train, **{field: value})))
    if run.weights is not None and field not in TUNED:
        raise UsageError(f"{field} of {contender.name} is what its weights say", "vary it in a model from scratch, or vary tune")
    family = run.model.family
    if not run.model.is_transformer and field not in ("image_size", "width" if family == "cnn" else ""):
        raise UsageError(f"{family} has no {field}: it would be the same model each time", "vary it in a ViT or a hybrid alone")
    changed: dict[str, Any] = {field: value}
    if field == "pool":  # a class token that nothing reads would only cost
        changed["class_token"] = value in ("class", "class+mean")
    if field == "patch_size":
        changed["stride"] = None
    model = dataclasses.replace(run.model, **changed)
    named["note"] = named["note"].replace(describe(run.model), describe(model))  # 16 tokens may have become 4
    return dataclasses.replace(contender, **named, run=dataclasses.replace(run, model=model), flops=forward_flops(model))


def _value(field: str, written: str) -> Any:
    """As the setting's type reads it."""
    fitted = read_value(_KINDS[field], written)
    if fitted is None:
        raise ConfigError(f"{field} = {written!r} cannot be varied", f"it must be {say_kind(_KINDS[field])}")
    return fitted[0]
