"""vitral train RUN: choose a named run, then override what you like. `plan` and `pretrain` read their flags here too."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import typing
from typing import TYPE_CHECKING, Any

from vitral.base.errors import UsageError, one_of
from vitral.base.progress import print_clean
from vitral.cli.parsing import read
from vitral.config import TUNED, ModelConfig, RunConfig, run_name
from vitral.config.flags import Flag, training_flags
from vitral.config.train import MANY_EPOCHS
from vitral.presets.runs import RUNS, pretraining

if TYPE_CHECKING:
    from vitral.run.folder import RunFolder
    from vitral.train.fit import Run

NAMED_RUNS = f"Named runs: {', '.join(RUNS)}"
EXAMPLES = f"""Train or fine-tune a model.

Examples:
  vitral train digits
  vitral train cifar10 --epochs 30 --seed 1 --out runs/short
  vitral train finetune --data pets --from vit_tiny.safetensors --tune head
  vitral train digits --set width=96 betas=0.9,0.95
  vitral train digits --out runs/digits --resume
  vitral train digits --out runs/digits --resume auto  # starts or resumes
  vitral train runs/digits --seed 1  # the same settings, another seed
  vitral train runs/digits --from runs/digits --epochs 10  # 10 epochs more
  torchrun --nproc-per-node 4 -m vitral train cifar10 --strategy fsdp

{NAMED_RUNS}
"""

Values = dict[str, Any]
"""Field of a flag → its value, of all that was typed."""


def run(arguments: list[str]) -> int:
    config, values = parse(arguments)
    result = train(config, values, ["vitral", "train", *arguments])
    if result is not None:
        print(json.dumps({"path": str(result.path), **result.test})) if values.get("json") else print_clean(result.path)
    return 0


def flags(verb: str = "train", base: RunConfig | None = None) -> list[Flag]:
    """The flags of train, plan or pretrain; the values of `base` are the defaults that `--help` shows."""
    return training_flags(verb, base or (pretraining("cifar10") if verb == "pretrain" else RunConfig()))


def parse(arguments: list[str], verb: str = "train", examples: str = EXAMPLES) -> tuple[RunConfig, Values]:
    """(what is asked for, what was typed)."""
    first = arguments[0] if arguments and not arguments[0].startswith("-") else "digits"
    preset = pretraining(first) if verb == "pretrain" else RUNS.get(first, RUNS["digits"])
    values = read(flags(verb, preset), arguments, f"vitral {verb}", examples)
    if verb == "pretrain" and "data.name" not in values:
        raise UsageError("pretrain needs the name of a data set", "use a name from `vitral data list` or folder:PATH")
    if verb != "pretrain" and "run" not in values:
        raise UsageError(f"{verb} needs the name of a run", f"use one of {', '.join(RUNS)}")
    base = _stored(values) if values.get("resume", "no") != "no" else None
    return _applied(base or _start(values), values), values


def train(config: RunConfig, values: Values, command: list[str]) -> Run | None:
    """Start the run or resume it; None in all but one of torchrun's processes, which speaks for all."""
    from vitral.run.folder import RunFolder
    from vitral.run.made_here import check_named
    from vitral.train.fit import fit

    start, resume, quiet = values.get("run", config.name), values.get("resume", "no"), values.get("quiet", False)
    folder = _folder(values, config.name)
    earlier = RunFolder(start) if "run" in values and start not in RUNS else None
    for source in (earlier, folder if resume != "no" else None):
        if source is not None and source.exists:
            check_named(source.path, config, command)
    if resume == "yes" or (resume == "auto" and folder.exists):
        result = fit(config, out=folder.path, resume=True, quiet=quiet)
    else:
        named = earlier.asked.run if earlier is not None and earlier.asked is not None else start
        result = fit(config, values.get("out"), "auto" if resume == "auto" else False, quiet, run=named, command=shlex.join(command))
    return result if os.environ.get("RANK", "0") == "0" else None


def _start(values: Values) -> RunConfig:
    """What a new run starts from: a preset, or what was asked for in the folder of an earlier run."""
    from vitral.run.folder import RunFolder

    if "run" not in values:
        return pretraining(values["data.name"], values.get("pretrain.method", "lejepa"))
    name = values["run"]
    if name in RUNS:
        return RUNS[name]
    if not RunFolder(name).exists:
        raise one_of("run", name, RUNS)
    asked = RunFolder.open(name).asked
    if asked is None:
        raise UsageError(f"{name} has no asked.json: it does not say what was asked for", f"use one of {', '.join(RUNS)}")
    return asked.config


def _stored(values: Values) -> RunConfig | None:
    """What was asked for in the folder to be resumed; None: it is empty."""
    from vitral.train.failure import go_on

    start, data, method = (values.get(field) for field in ("run", "data.name", "pretrain.method"))
    if start is None:
        named = pretraining(values["data.name"]).name
    else:
        named = run_name(RUNS[start], data or RUNS[start].data.name) if start in RUNS else start
    folder = _folder(values, values.get("name") or named)
    asked = folder.asked if folder.exists else None
    if asked is None:
        return None
    config = asked.config
    if start is not None and start not in (config.name, asked.run, str(folder.path)):
        raise UsageError(f"{folder.path} holds a training of {asked.run}, not of {start}", go_on(folder))
    if start is None and (config.pretrain is None or config.data.name != data):
        raise UsageError(f"{folder.path} holds a training of {asked.run} on {config.data.name}", go_on(folder))
    if method is not None and config.pretrain is not None and method != config.pretrain.method:  # the settings of one are not another's
        raise UsageError(f"{folder.path} holds a pre-training by {config.pretrain.method}, not by {method}", go_on(folder))
    return config


def _folder(values: Values, name: str) -> RunFolder:
    """The folder that --resume continues: --out, an earlier run's, or the newest of this name."""
    from vitral.run.folder import RunFolder

    out, start = values.get("out"), values.get("run")
    if out is None and start is not None and start not in RUNS and RunFolder(start).exists:
        out = start
    return RunFolder(out) if out is not None else RunFolder.newest(name)


def _applied(base: RunConfig, values: Values) -> RunConfig:
    """`base` with everything that was typed."""
    changes: dict[str, Values] = {"model": {}, "data": {}, "train": {}, "pretrain": {}}
    for key, value in values.items():
        part, dot, field = key.partition(".")
        if dot:
            changes[part][field] = value
    if changes["train"].get("max_seconds") is not None and base.pretrain is not None and base.train.max_seconds is None:
        changes["train"].setdefault("epochs", MANY_EPOCHS)  # the seconds end it
    for text in values.get("set", ()):
        part, field, value = setting(text, base)
        changes[part][field] = value
    weights = values.get("weights", base.weights)
    if weights is not None:
        _check_from(weights, values, changes["model"])
    # All at once: pool=class class_token=true is possible in either order.
    configs = {"model": _model(base, values), "data": base.data, "train": base.train, "pretrain": base.pretrain}
    parts: Values = {part: dataclasses.replace(config, **changes[part]) for part, config in configs.items() if config is not None}
    named = run_name(base, parts["data"].name) if base is RUNS.get(base.name) else base.name
    return dataclasses.replace(base, name=values.get("name") or named, weights=weights, **parts)


def _model(base: RunConfig, values: Values) -> ModelConfig:
    """The run's model, or the named one, with the sizes that were typed."""
    from vitral.presets.models import model as named_model

    model = base.model
    changes: Values = {name: _pair(value) for name in ("image_size", "patch_size") if (value := values.get(name)) is not None}
    if values.get("model") is not None:
        changes = {"image_size": model.image_size, **changes}  # a size that the run asks for holds for every model
        model = named_model(values["model"]).opened()
    if "patch_size" in changes:
        changes["stride"] = None
    return dataclasses.replace(model, **changes)


def _check_from(weights: str, values: Values, settings: Values) -> None:
    """Weights decide what the model is: a flag that asks for another one would have no effect."""
    asked = [f"--{name.replace('_', '-')}" for name in ("model", "patch_size") if values.get(name) is not None]
    asked += [f"--set {name}" for name in settings if name not in TUNED]
    if asked:
        raise UsageError(
            f"{asked[0]} cannot change the model of the weights {weights}", f"leave {asked[0]} out, or start from scratch: --from None"
        )


def setting(text: str, base: RunConfig) -> tuple[str, str, Any]:
    """(part, field, value) of `name=value`; the value is read as the field's type."""
    from vitral.base.settings import read_value, say_kind

    name, sign, value = text.partition("=")
    parts = {part: getattr(base, part) for part in ("model", "train", "data", "pretrain")}
    hints = {part: typing.get_type_hints(type(config)) for part, config in parts.items() if config is not None}
    part = next((part for part in hints if name in hints[part]), None)
    if not sign:
        raise UsageError(f"--set {text} has no value", "write it as name=value")
    if part is None:
        raise one_of("setting", name, sorted(set().union(*hints.values())))
    if fitted := read_value(hints[part][name], value):
        return part, name, fitted[0]
    raise UsageError(f"--set {name}={value}", f"it must be {say_kind(hints[part][name])}")


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    if len(values) not in (1, 2):
        raise UsageError(f"a size of {len(values)} numbers", "give one (square) or two (height width)")
    return values[0], values[-1]
