"""One setting in several values: each model of a comparison becomes a contender for each, and all else stays equal."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from typing import Any

from vitral.base.errors import ConfigError, UsageError, one_of
from vitral.base.settings import read_value, say_kind
from vitral.config import TUNED, DataConfig, ModelConfig, TrainConfig
from vitral.cost.flops import forward_flops
from vitral.study.fight.contenders import describe, tuning_lrs
from vitral.study.fight.protocol import DATA_SETTINGS, Contender

OF_A_RUN = ("seed", "epochs", "max_seconds", "lr", "adam_lr", "device", "threads", "keep", "test", "evaluate_every", "snapshots", "tune")
"""What the study itself decides."""
SETTINGS = (*DATA_SETTINGS, *(field.name for field in dataclasses.fields(TrainConfig) if field.name not in OF_A_RUN))
KINDS = {name: hint for config in (DataConfig, TrainConfig, ModelConfig) for name, hint in typing.get_type_hints(config).items()}
OF_THE_DATA = ("channels", "classes")
"""What a model is given as many of as the data have, whatever is asked for."""
FIELDS = ("tune", *SETTINGS, *(field.name for field in dataclasses.fields(ModelConfig)))


def read_varied(text: str) -> tuple[str, list[str]]:
    """(setting, values as written) of `norm_order=pre,post`, `pool=class,mean`, `patch_size=2,4,8`, `batch_size=64,512`: values that it can
    have."""
    field, given, written = text.partition("=")
    field = field.strip()
    values = [value for part in written.split(",") if (value := part.strip())]
    if not given or len(values) < 2:
        raise UsageError(f"--vary {text!r} is not a setting with two values or more", "use for example --vary norm_order=pre,post")
    if field not in FIELDS:
        raise one_of("setting to vary", field, FIELDS)
    if field in OF_THE_DATA:
        raise UsageError(f"the data say how many {field} there are", "vary another setting")
    if float in typing.get_args(KINDS[field]) and typing.get_origin(KINDS[field]) is tuple:
        raise UsageError(f"{field} is several numbers, and a comma stands between values here", "vary another setting")
    if twice := next((value for value in values if values.count(value) > 1), None):
        raise UsageError(f"--vary {field} has {twice} twice", "name each value once")
    for value in values:
        if field in SETTINGS:  # a model's settings are checked together, in the model that they change
            (DataConfig if field in DATA_SETTINGS else TrainConfig)(**{field: _value(field, value)})
        _value(field, value)
    return field, values


def vary(contenders: Sequence[Contender], text: str) -> tuple[Contender, ...]:
    """Each contender in each of the values that `text` gives a setting."""
    field, values = read_varied(text)
    return tuple(_varied(contender, field, value) for contender in contenders for value in values)


def _varied(contender: Contender, field: str, written: str) -> Contender:
    value = _value(field, written)
    named: dict[str, Any] = {
        "name": f"{contender.name} {field}={written}",
        "note": f"{contender.note}, {field} {written}",
        "base": f"{contender.base} {field}={written}",
    }
    if field == "tune":
        if contender.weights is None:
            raise UsageError(f"tune={written} without weights would freeze random numbers", "give weights with --from")
        optimizer = contender.settings.get("optimizer", "adamw")
        return dataclasses.replace(contender, **named, tune=value, lrs=tuning_lrs(optimizer, value) if contender.widens else contender.lrs)
    if field in SETTINGS:
        return dataclasses.replace(contender, **named, settings={**contender.settings, field: value})
    if contender.weights is not None and field not in TUNED:
        raise UsageError(f"{field} of {contender.name} is what its weights say", "vary it in a model from scratch, or vary tune")
    family = contender.model.family
    if not contender.model.is_transformer and field not in ("image_size", "width" if family == "cnn" else ""):
        raise UsageError(f"{family} has no {field}: it would be the same model each time", "vary it in a ViT or a hybrid alone")
    changed: dict[str, Any] = {field: value}
    if field == "pool":  # a class token that nothing reads would only be there to be paid for
        changed["class_token"] = value in ("class", "class+mean")
    if field == "patch_size":
        changed["stride"] = None
    model = dataclasses.replace(contender.model, **changed)
    named["note"] = named["note"].replace(describe(contender.model), describe(model))  # 16 tokens may have become 4
    return dataclasses.replace(contender, **named, model=model, flops=forward_flops(model))


def _value(field: str, written: str) -> Any:
    """As the setting's type reads it."""
    fitted = read_value(KINDS[field], written)
    if fitted is None:
        raise ConfigError(f"{field} = {written!r} cannot be varied", f"it must be {say_kind(KINDS[field])}")
    return fitted[0]
