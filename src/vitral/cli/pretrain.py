"""vitral pretrain DATA: learn from pictures without labels."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import typing
from typing import TYPE_CHECKING, Annotated, Any, Literal

from vitral.base.errors import DataError, UsageError
from vitral.base.layout import NEIGHBOURS
from vitral.base.progress import say, tell
from vitral.base.text import percent
from vitral.cli.parsing import parse as parse_flags
from vitral.cli.train import RESUME_HELP, gather_settings, setting, shaped, spoken_resume, value_of
from vitral.cli.train import documents as documents_of
from vitral.config import DataConfig, ModelConfig, PretrainConfig, RunConfig, TrainConfig

if TYPE_CHECKING:
    from vitral.run.folder import RunFolder

EXAMPLES = """Pre-train a Vision Transformer on pictures without labels. No label is read until the run is over; where the data has some, a
linear probe and nearest neighbours then say what the features are worth on validation.

Examples:
  vitral pretrain digits
  vitral pretrain folder:photos --seconds 600 --out runs/photos
  vitral pretrain cifar10 --method dino --seconds 600 --seed 1
  vitral pretrain cifar10 --set gaussian_weight=0.03 projection=128
  vitral pretrain folder:photos --from runs/photos --epochs 20  # goes on
  vitral pretrain folder:photos --out runs/photos --resume
  vitral probe runs/photos folder:sorted
  vitral train finetune --from runs/photos --data folder:sorted

Methods: lejepa (views pulled together, embeddings kept Gaussian), dino (a student answers like its own EMA), mae (hidden patches rebuilt)
"""

METHODS = ("lejepa", "dino", "mae")
DATA_FLAGS = ("validation", "stage", "subset", "workers", "on_bad_image")
TRAIN_FLAGS = (
    *(
        "tune",
        "epochs",
        "batch_size",
        "optimizer",
        "lr",
        "weight_decay",
        "warmup",
        "ema",
        "token_drop",
        "precision",
        "compile",
        "device",
        "threads",
    ),
    *("seed", "evaluate_every", "checkpoint_every", "snapshots", "strategy", "tensorboard", "wandb"),
)
PRETRAIN_FLAGS = ("global_views", "local_views", "on_collapse", "online_knn")
WITHOUT_END = 1e6
"""Epochs of a run that the clock ends."""


def run(arguments: list[str]) -> int:
    flags = parse(arguments)
    if flags.test and flags.skip_probe:
        raise UsageError("--test asks for what the probe answers, --skip-probe for none", "leave one of them out")
    config = flags.config()
    from vitral.run.folder import RunFolder
    from vitral.run.made_here import check_named
    from vitral.train.fit import fit

    folder = RunFolder(flags.out) if flags.out is not None else RunFolder.newest(config.name)
    if flags.resume != "no" and folder.exists:
        check_named(folder.path, config, arguments)
    if flags.resume == "yes" or (flags.resume == "auto" and folder.exists):
        result = fit(config, out=folder.path, resume=True, quiet=flags.quiet)
    else:
        command = shlex.join(["vitral", "pretrain", *arguments])
        result = fit(config, flags.out, flags.resume == "auto" and "auto", flags.quiet, run=config.name, command=command)
    if os.environ.get("RANK", "0") != "0":
        return 0  # under torchrun one process speaks for all
    from vitral.study.learning import draw_learning, draw_rebuilt

    if result.rebuilt is not None:
        draw_rebuilt(RunFolder(result.path), result.rebuilt)
    draw_learning(result.path)
    found = None if flags.skip_probe else _probe(result.path, config, flags)
    if found is not None and flags.test:
        found |= _test(result.path, config, flags)
    if flags.json:
        print(json.dumps({"path": str(result.path), **result.test, "probe": found}))
    else:
        tell(result.path)
    return 0


def _probe(path: Any, config: RunConfig, flags: Any) -> dict[str, Any] | None:
    """What the features are worth, where the data has labels."""
    from vitral.study.probe_run import probe_run

    try:
        result = probe_run(path, device=config.train.device, quiet=flags.quiet)
    except DataError as error:
        if not flags.quiet:
            say(f"note: not probed: {error}")
        return None
    if not flags.json:
        tell(result.table)
    return result.values


def _test(path: Any, config: RunConfig, flags: Any) -> dict[str, float]:
    """What linear probe and nearest neighbours have on the test pictures, which are opened here; the answers stay in the folder."""
    from vitral.run.folder import RunFolder
    from vitral.study.probe_run import probe_in_place

    folder = RunFolder.open(path)
    probe_in_place(folder, test=True, neighbours=True, device=config.train.device)
    linear, nearest = (folder.answers(split).right for split in ("test", NEIGHBOURS))
    if not flags.json:
        scores = f"{percent(linear.mean())} with the linear probe, {percent(nearest.mean())} by neighbours"
        tell(f"test: accuracy {scores}, {len(linear):,} pictures")
    return {"test": float(linear.mean()), "test_neighbours": float(nearest.mean())}


def parse(arguments: list[str]) -> Any:
    asked_help = any(argument in ("-h", "--help") for argument in arguments)
    data = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    if not data and not asked_help:
        raise UsageError("pretrain needs the name of a data set first", "use a name from `vitral data list` or folder:PATH")
    arguments = spoken_resume(arguments)
    base = None
    if data and value_of(arguments, "--resume") in ("yes", "auto") and (out := value_of(arguments, "--out")):
        base = _stored(data, out, value_of(arguments, "--method"))
    if base is None:
        from vitral.presets.runs import pretraining

        method = value_of(arguments, "--method") or METHODS[0]
        base = pretraining(data or "digits", method if method in METHODS else METHODS[0])  # type: ignore[arg-type]
    return parse_flags(flags_of(base), gather_settings(arguments), "vitral pretrain", EXAMPLES)


def _stored(data: str, out: str, method: str | None) -> RunConfig | None:
    """What was asked for in this folder, if it is a pre-training on this data; None: there is none."""
    from vitral.run.folder import RunFolder
    from vitral.train.failure import go_on

    folder: RunFolder = RunFolder(out)
    if not folder.exists or folder.asked is None:
        return None
    config = folder.asked.config
    if config.pretrain is None or config.data.name != data:
        raise UsageError(f"{out} holds a training of {folder.asked.run} on {config.data.name}", go_on(folder))
    if method is not None and method != config.pretrain.method:  # the settings of one are not those of another
        raise UsageError(f"{out} holds a pre-training by {config.pretrain.method}, not by {method}", go_on(folder))
    return config


def flags_of(base: RunConfig) -> type[Any]:
    """A dataclass with one field per flag, whose defaults are those of `base`."""
    import tyro

    assert base.pretrain is not None
    about = tyro.conf.arg(help=documents_of(DataConfig)["name"], metavar="DATA")
    rows: list[Any] = [("data", Annotated[str, tyro.conf.Positional, about])]

    def add(name: str, kind: Any, default: Any, text: str, flag: str | None = None) -> None:
        rows.append((name, Annotated[kind, tyro.conf.arg(help=text, name=flag)], dataclasses.field(default=default)))

    def add_all(names: tuple[str, ...], kind: type[Any], values: Any) -> None:
        for name in names:
            add(name, typing.get_type_hints(kind)[name], getattr(values, name), documents_of(kind).get(name, ""))

    add_all(("method",), PretrainConfig, base.pretrain)
    text = "Learn for so many seconds: the schedule is scaled to them, compiling and looking are not in them. None: for the epochs."
    add("seconds", float | None, base.train.max_seconds, text)
    add("model", str | None, None, "A named model (`vitral.models()`); None: what suits the data.")
    for name in ("image_size", "patch_size"):
        add(
            name, tuple[int, ...] | None, None, f"{documents_of(ModelConfig)[name]} One number: square. None: the run's own, or the data's."
        )
    add("weights", str | None, base.weights, documents_of(RunConfig)["weights"], "from")
    add_all(PRETRAIN_FLAGS, PretrainConfig, base.pretrain)
    add_all(TRAIN_FLAGS, TrainConfig, base.train)
    add_all(DATA_FLAGS, DataConfig, base.data)
    add("set", tuple[str, ...], (), "Any other setting of the model, data, training or pre-training as name=value: gaussian_weight=0.05")
    add("name", str | None, None, "Name of the run; its folder is runs/NAME. None: pretrain, or pretrain-DATA.")
    add("out", str | None, None, "Folder of the run; None: runs/NAME.")
    add("resume", Literal["no", "yes", "auto"], "no", RESUME_HELP)
    add("skip_probe", bool, False, "Do not probe the features at the end; no label is read at all then.")
    add(
        "test",
        bool,
        False,
        "Then open the test pictures, once, and keep what the linear probe answers: for the final figure, not to choose by.",
    )
    add("quiet", bool, False, "No progress.")
    add("json", bool, False, "Print the result as JSON.")

    def config(flags: Any) -> RunConfig:
        return apply(base, flags)

    return dataclasses.make_dataclass("Flags", rows, namespace={"config": config}, frozen=True)


def apply(base: RunConfig, flags: Any) -> RunConfig:
    """`base` with everything that the flags change."""
    assert base.pretrain is not None
    train = {name: getattr(flags, name) for name in TRAIN_FLAGS}
    if flags.seconds is not None and train["epochs"] == base.train.epochs:
        train["epochs"] = WITHOUT_END
    settings: dict[str, dict[str, Any]] = {
        "model": {},
        "data": {"name": flags.data, **{name: getattr(flags, name) for name in DATA_FLAGS}},
        "train": {**train, "max_seconds": flags.seconds},
        "pretrain": {"method": flags.method, **{name: getattr(flags, name) for name in PRETRAIN_FLAGS}},
    }
    for text in flags.set:
        part, name, value = setting(text, pretrain=True)
        settings[part][name] = value
    made = {part: dataclasses.replace(getattr(base, part), **changes) for part, changes in settings.items() if part != "model"}
    model = dataclasses.replace(shaped(base, flags), **settings["model"])
    return dataclasses.replace(base, name=flags.name or base.name, weights=flags.weights, model=model, **made)
