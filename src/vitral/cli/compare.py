"""vitral compare DATA: several models under one budget, a fair fight."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from vitral.base.errors import UsageError
from vitral.base.progress import print_clean
from vitral.cli.parsing import flags_of, read
from vitral.config import RunConfig, TrainConfig
from vitral.config.flags import Flag, training_flags

EXAMPLES = """Compare several models under one budget: same splits, augmentation and tuning effort, several seeds, test opened once per run.
The same command again resumes a stopped study.

Examples:
  vitral compare digits --models vit,cnn,hybrid --budget samples=50000
  vitral compare cifar10 --models vit,cnn,resnet18 --budget seconds=20
  vitral compare pets flowers102 --from vit=timm:vit_small_patch16_224
  vitral compare cifar10 --models vit,cnn,cnn@parameters --recipe plain,strong
  vitral compare digits --models vit --vary norm_order=pre,post
  vitral compare cifar10 --pretrain lejepa,dino,mae,supervised,untrained
  vitral compare digits --models vit,cnn --ray local --json
"""


@dataclass(frozen=True)
class StudyFlags:
    """What compare and scale share."""

    data: Annotated[str, "DATA"]
    """A name from `vitral data list`, folder:PATH, csv:FILE, parquet:FILE, hf:NAME or webdataset:PATTERN."""
    models: str | None = None
    """Names with commas: vit, vit-small, vit-large, hybrid, cnn, resnet18, s/4 …; vit is a ViT made for the data's size;
    cnn@parameters, vit@flops: as wide as makes them equal to the first. Default: compare has vit,cnn,resnet18,hybrid,
    scale those that suit its kind."""
    budget: str = "samples=50000"
    """What one final run may spend: samples=50000, epochs=10, seconds=20 or flops=1e15."""
    seeds: int = 3
    """Final runs per model (and size)."""
    lrs: str | None = None
    """Learning rates to choose from on validation, with commas; one: no tuning. Default: three that suit
    the optimizer, more while the best lies at the edge."""
    tuning_share: float = 0.25
    """Part of the budget that each tuning run may spend."""
    max_hours: float | None = None
    """Refuse what is predicted to take longer: a few steps of each model are timed first."""
    out: str | None = None
    """The study's folder; default runs/VERB-DATA. A study in it is resumed."""
    recipe: str = "plain"
    """plain: AdamW, cosine, flips and shifts; strong: Muon, mixed images, label smoothing, EMA; plain,strong: each model with both."""
    parallel: int | None = None
    """Cells at a time; default: as many as there are cores, one on a GPU."""
    ray: str | None = None
    """Address of a Ray cluster, or local for one of its own."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """Print no progress."""


_RARE = ("tuning_share", "max_hours", "parallel", "ray", "claim", "quiet", "transfer", "shots")


@dataclass(frozen=True)
class _Flags(StudyFlags):
    more: Annotated[tuple[str, ...], "DATA…"] = ()
    """Further data sets: the same comparison on each, then one table of them all."""
    weights: Annotated[str | None, "--from"] = None
    """Weights to start from: MODEL=WEIGHTS with commas; WEIGHTS is anything `vitral eval` takes. Without --models, these are compared."""
    tune: Literal["all", "attention", "head", "lora"] = "all"
    """Which parameters learn in models that start from weights; a model without attention learns wholly instead."""
    pretrain: str | None = None
    """Compare ways of learning instead of models: lejepa, dino, mae, supervised, untrained, with commas. One model (--models, else vit)
    spends the budget on each; a linear probe of its frozen features is what is tested. The first three never see a label; untrained is what
    random weights have."""
    vary: str | None = None
    """One setting in several values, for each model: norm_order=pre,post, pool=class,mean, patch_size=2,4,8, batch_size=64,512,
    tune=attention,all …"""
    claim: Literal["auto", "significance", "none"] = "auto"
    """significance needs two seeds or more; none: a description without intervals and tests."""


def flags() -> list[Flag]:
    return study_flags("compare", _Flags)


def run(arguments: list[str]) -> int:
    values = read(flags(), arguments, "vitral compare", EXAMPLES)
    from vitral.study.fight.compare import compare

    as_json, data = values.pop("json", False), [values.pop("data"), *values.pop("more", ())]
    for name in ("weights", "pretrain"):
        if name in values:
            values[name] = _sources(values[name]) if name == "weights" else names(values[name])
    return show(compare(data, **study_values(values)), as_json)


def study_flags(verb: str, kind: type[StudyFlags]) -> list[Flag]:
    """The verb's own flags, then those of a training."""
    own = (replace(flag, group=flag.group if flag.positional else "Study", common=flag.field not in _RARE) for flag in flags_of(kind))
    return [*own, *training_flags(verb, RunConfig(train=TrainConfig(threads=1)))]


def study_values(values: dict[str, Any]) -> dict[str, Any]:
    """What was typed, as the calls of `vitral.study` take it."""
    values = {key.rpartition(".")[2]: value for key, value in values.items()}
    lists = {"models": names, "lrs": lambda text: numbers(text, "--lrs")}
    return values | {name: read_list(values[name]) for name, read_list in lists.items() if name in values}


def show(result: Any, as_json: bool) -> int:
    """Print a study's result; the exit code says whether all of it is there."""
    from vitral.base.files import plain

    print(json.dumps(plain(result.values))) if as_json else print_clean(result)
    return 1 if result.failed else 0


def names(text: str | None) -> list[str] | None:
    return None if text is None else [name for part in text.split(",") if (name := part.strip())]


def numbers(text: str | None, flag: str) -> list[float] | None:
    if text is None:
        return None
    try:
        values = [float(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is not a list of numbers", "write them with commas, for example 1e-3,3e-3") from error
    if not values or not all(0 < number < math.inf for number in values):
        raise UsageError(f"{flag} {text!r} is not a list of positive numbers", "write them with commas, for example 1e-3,3e-3")
    return values


def _sources(text: str | None) -> dict[str, str]:
    pairs = [part.partition("=") for part in (text or "").split(",") if part.strip()]
    if wrong := next((name for name, _, source in pairs if not source), None):
        raise UsageError(f"--from {wrong!r} names no model", "use MODEL=WEIGHTS, for example vit=timm:vit_tiny_patch16_224")
    return {name.strip(): source.strip() for name, _, source in pairs}
