"""vitral train RUN: choose a named run, then override what you like."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import os
import shlex
import textwrap
import typing
from typing import TYPE_CHECKING, Annotated, Any, Literal

from vitral.base.errors import UsageError, one_of
from vitral.base.progress import tell
from vitral.cli.parsing import parse as parse_flags
from vitral.config import TUNED, DataConfig, ModelConfig, PretrainConfig, RunConfig, TrainConfig, run_name

if TYPE_CHECKING:
    from vitral.run.folder import RunFolder

EXAMPLES = """Train or fine-tune a model.

Examples:
  vitral train digits
  vitral train cifar10 --epochs 30 --seed 1 --out runs/short
  vitral train finetune --data pets --from vit_tiny.safetensors --tune head
  vitral train digits --set width=96 betas=0.9,0.95
  vitral train digits --out runs/digits --resume
  vitral train digits --out runs/digits --resume auto  # begins or resumes
  vitral train runs/digits --seed 1  # the same settings, another seed
  vitral train runs/digits --from runs/digits --epochs 10  # 10 epochs more
  torchrun --nproc-per-node 4 -m vitral train cifar10 --strategy fsdp

Named runs: {runs}
"""

PLAN = """What a training will cost, before it is spent: steps, FLOPs, memory, time. Takes the flags of train; nothing is fetched.

Examples:
  vitral plan digits
  vitral plan cifar10 --epochs 30 --gpu h200
  vitral plan finetune --data folder:photos --from vit_tiny.safetensors --json

Named runs: {runs}
"""

RESUME = ("no", "yes", "auto")
RESUME_HELP = "Go on with the training in the folder, exactly where it stopped; auto: begin it where there is none (job queues)."
DATA_FLAGS = ("validation", "stage", "subset", "augment", "workers", "cache", "on_bad_image", "fingerprint", "class_weights")
TRAIN_FLAGS = (
    *("tune", "epochs", "max_seconds", "batch_size", "accumulate", "optimizer", "lr", "weight_decay", "schedule", "warmup", "layer_decay"),
    *("clip", "label_smoothing", "ema", "keep", "patience", "teacher", "token_drop", "token_drop_until", "head_start"),
    *("precision", "compile", "device", "threads", "seed"),
    *("evaluate_every", "checkpoint_every", "snapshots", "strategy", "tensorboard", "wandb"),
)


def run(arguments: list[str]) -> int:
    flags = parse(arguments)
    config = flags.config()
    from vitral.presets.runs import RUNS
    from vitral.run.folder import RunFolder
    from vitral.run.made_here import check_named
    from vitral.train.fit import fit

    folder = _folder(flags.run, config.name, flags.out)
    for source in [RunFolder(flags.run)] * (flags.run not in RUNS) + [folder] * (flags.resume != "no"):
        if source.exists:
            check_named(source.path, config, arguments)
    if flags.resume == "yes" or (flags.resume == "auto" and folder.exists):
        result = fit(config, out=folder.path, resume=True, quiet=flags.quiet)
    else:
        command = shlex.join(["vitral", "train", *arguments])
        result = fit(config, flags.out, flags.resume == "auto" and "auto", flags.quiet, run=_base(flags.run)[1], command=command)
    if os.environ.get("RANK", "0") != "0":
        return 0  # under torchrun one process speaks for all
    if flags.json:
        print(json.dumps({"path": str(result.path), **result.test}))
    else:
        tell(result.path)
    return 0


def _folder(run: str, name: str, out: str | None) -> RunFolder:
    """The folder that --resume goes on with."""
    from vitral.presets.runs import RUNS
    from vitral.run.folder import RunFolder

    if out is None and run not in RUNS and RunFolder(run).exists:
        out = run
    return RunFolder(out) if out is not None else RunFolder.newest(name)


def _stored(run: str, folder: RunFolder) -> RunConfig | None:
    """What was asked for in this folder, if it is a training of this run; None: there is none."""
    from vitral.train.failure import go_on

    if not folder.exists or folder.asked is None:
        return None
    asked = folder.asked
    if run not in (asked.config.name, asked.run, str(folder.path)):
        raise UsageError(f"{folder.path} holds a training of {asked.run}, not of {run}", go_on(folder))
    return asked.config


def _base(run: str) -> tuple[RunConfig, str]:
    """(what RUN asks for, the named run it is): a preset, or the settings of an earlier training by its folder."""
    from vitral.presets.runs import RUNS
    from vitral.run.folder import RunFolder

    if run in RUNS:
        return RUNS[run], run
    if not RunFolder(run).exists:
        raise one_of("run", run, RUNS)
    asked = RunFolder.open(run).asked
    if asked is None:
        raise UsageError(f"{run} has no asked.json: it does not say what was asked for", f"use one of {', '.join(RUNS)}")
    return asked.config, asked.run


def parse(arguments: list[str], verb: str = "train") -> Any:
    """The flags of a run: its own values are the defaults, and `--help` shows them."""
    from vitral.presets.runs import RUNS

    asked_help = any(argument in ("-h", "--help") for argument in arguments)
    name = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    if not name and not asked_help:
        raise UsageError(f"{verb} needs the name of a run first", f"use one of {', '.join(RUNS)}")
    base = None
    arguments = spoken_resume(arguments) if verb == "train" else arguments
    if name and value_of(arguments, "--resume") in ("yes", "auto"):
        preset = RUNS.get(name)
        called = run_name(preset, value_of(arguments, "--data") or preset.data.name) if preset is not None else name
        base = _stored(name, _folder(name, value_of(arguments, "--name") or called, value_of(arguments, "--out")))
    if base is None:
        base = RUNS["digits"] if asked_help and name not in RUNS else _base(name)[0]
    examples = (EXAMPLES if verb == "train" else PLAN).format(runs=", ".join(RUNS))
    return parse_flags(flags_of(base, verb), gather_settings(arguments), f"vitral {verb}", examples)


def gather_settings(arguments: list[str]) -> list[str]:
    """`--set a=1 … --set b=2` as one --set: the parser would keep the last one alone."""
    kept: list[str] = []
    settings: list[str] = []
    inside = False
    for argument in arguments:
        if argument == "--set" or argument.startswith("--set="):
            inside = True
            settings += [argument.removeprefix("--set=")] if "=" in argument else []
        elif inside and not argument.startswith("-"):
            settings.append(argument)
        else:
            inside = False
            kept.append(argument)
    return [*kept, "--set", *settings] if settings else arguments


def spoken_resume(arguments: list[str]) -> list[str]:
    """`--resume` alone is `--resume yes`."""
    following = [*arguments[1:], ""]
    return [
        "--resume=yes" if word == "--resume" and after not in RESUME else word for word, after in zip(arguments, following, strict=True)
    ]


def value_of(arguments: list[str], flag: str) -> str | None:
    for index, argument in enumerate(arguments):
        if argument == flag and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith(flag + "="):
            return argument.partition("=")[2]
    return None


def flags_of(base: RunConfig, verb: str = "train") -> type[Any]:
    """A dataclass with one field per flag, whose defaults are those of `base`."""
    import tyro

    rows: list[Any] = [
        (
            "run",
            Annotated[
                str,
                tyro.conf.Positional,
                tyro.conf.arg(help="Name of a run to start from, or the folder of an earlier one.", metavar="RUN"),
            ],
        )
    ]

    def add(name: str, kind: Any, default: Any, text: str, flag: str | None = None) -> None:
        about = tyro.conf.arg(help=text, name=flag) if flag else tyro.conf.arg(help=text)
        rows.append((name, Annotated[kind, about], dataclasses.field(default=default)))

    add("data", str, base.data.name, documents(DataConfig)["name"])
    for name in DATA_FLAGS:
        add(name, typing.get_type_hints(DataConfig)[name], getattr(base.data, name), documents(DataConfig).get(name, ""))
    add("model", str | None, None, "A named model (`vitral.models()`); None: the run's own.")
    for name in ("image_size", "patch_size"):
        what = documents(ModelConfig)[name].partition("; None:")[0].rstrip(".")
        add(name, tuple[int, ...] | None, None, f"{what}. One number: square. None: the run's own, or the data's.")
    add("weights", str | None, base.weights, documents(RunConfig)["weights"], "from")
    for name in TRAIN_FLAGS:
        add(name, typing.get_type_hints(TrainConfig)[name], getattr(base.train, name), documents(TrainConfig).get(name, ""))
    add("set", tuple[str, ...], (), "Any other setting of the model, data or training as name=value: qk_norm=true betas=0.9,0.95")
    if verb == "train":
        add("name", str | None, None, "Name of the run; its folder is runs/NAME. None: as the preset.")
        add("out", str | None, None, "Folder of the run; None: runs/NAME.")
        add("resume", Literal["no", "yes", "auto"], "no", RESUME_HELP)
        add("quiet", bool, False, "No progress.")
    else:
        add("gpu", str | None, None, "Plan for this GPU instead of this machine: h200, h100, a100, l40s, 4090, 3090, v100, t4 …")
    add("json", bool, False, "Print the result as JSON.")

    def config(flags: Any) -> RunConfig:
        return apply(base, flags)

    return dataclasses.make_dataclass("Flags", rows, namespace={"config": config}, frozen=True)


def apply(base: RunConfig, flags: Any) -> RunConfig:
    """`base` with everything that the flags change."""
    data = dataclasses.replace(base.data, name=flags.data, **{name: getattr(flags, name) for name in DATA_FLAGS})
    train = dataclasses.replace(base.train, **{name: getattr(flags, name) for name in TRAIN_FLAGS})
    parts: dict[str, Any] = {"model": shaped(base, flags), "data": data, "train": train}
    settings: dict[str, dict[str, Any]] = {part: {} for part in parts}
    for text in flags.set:
        part, name, value = setting(text)
        settings[part][name] = value
    if flags.weights is not None:
        _check_from(flags, settings["model"])
    # All at once: pool=class class_token=true is possible in either order.
    parts = {part: dataclasses.replace(config, **settings[part]) for part, config in parts.items()}
    from vitral.presets.runs import RUNS

    called = run_name(base, flags.data) if base is RUNS.get(base.name) else base.name
    return dataclasses.replace(base, name=getattr(flags, "name", None) or called, weights=flags.weights, **parts)


def shaped(base: RunConfig, flags: Any) -> ModelConfig:
    """The run's model, or the named one, in the size and with the patches that the flags say."""
    from vitral.presets.models import model as named_model

    model = base.model
    changes: dict[str, Any] = {name: _pair(value) for name in ("image_size", "patch_size") if (value := getattr(flags, name)) is not None}
    if flags.model is not None:
        changes = {"image_size": model.image_size, **changes}  # a size that the run asks for holds for every model
        model = named_model(flags.model).opened()
    if "patch_size" in changes:
        changes["stride"] = None
    return dataclasses.replace(model, **changes)


def _check_from(flags: Any, settings: dict[str, Any]) -> None:
    """Weights say what the model is: what asks for another one would be passed over in silence."""
    asked = [f"--{name.replace('_', '-')}" for name in ("model", "patch_size") if getattr(flags, name) is not None]
    asked += [f"--set {name}" for name in settings if name not in TUNED]
    if asked:
        raise UsageError(
            f"{asked[0]} cannot change the model of the weights {flags.weights}",
            f"leave {asked[0]} out, or start from scratch: --from None",
        )


def setting(text: str, pretrain: bool = False) -> tuple[str, str, Any]:
    """(part, field, value) of `name=value`; the value is read as the field's type."""
    from vitral.base.settings import read_value, say_kind

    name, sign, value = text.partition("=")
    kinds = {"model": ModelConfig, "train": TrainConfig, "data": DataConfig, **({"pretrain": PretrainConfig} if pretrain else {})}
    hints = {part: typing.get_type_hints(kind) for part, kind in kinds.items()}
    part = next((part for part in kinds if name in hints[part]), None)
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


@functools.cache
def documents(kind: type[Any]) -> dict[str, str]:
    """The docstring under each field of a config."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    found: dict[str, str] = {}
    for field, after in itertools.pairwise(body):
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, str):
            found[field.target.id] = " ".join(text.split())
    return found
