"""vitral compare DATA: several models under one budget, a fair fight."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from vitral.base.errors import UsageError
from vitral.base.progress import tell
from vitral.cli.parsing import parse
from vitral.config.data import Augmentation
from vitral.config.formats import TrainingPrecision

EXAMPLES = """Several models under one budget: same splits, augmentation and tuning effort, several seeds, test opened once per run.

Examples:
  vitral compare digits --models vit,cnn,hybrid --budget samples=50000
  vitral compare cifar10 --models vit,cnn,resnet18 --budget seconds=20
  vitral compare pets flowers102 --from vit=timm:vit_small_patch16_224
  vitral compare cifar10 --models vit,cnn,cnn@parameters --recipe plain,strong
  vitral compare digits --models vit --vary norm_order=pre,post
  vitral compare cifar10 --pretrain lejepa,dino,mae,supervised,untrained
  vitral compare digits --models vit,cnn --ray local --json

The same command again goes on where it was stopped.
"""


@dataclass(frozen=True)
class StudyFlags:
    """What compare and scale share."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
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
    """The study's folder; default runs/VERB-DATA. A study in it goes on."""
    recipe: str = "plain"
    """plain: AdamW, cosine, flips and shifts; strong: Muon, mixed pictures, label smoothing, EMA; plain,strong: each model with both."""
    optimizer: Literal["adamw", "sgd", "muon"] | None = None
    """Instead of the recipe's."""
    schedule: Literal["cosine", "linear", "step", "constant"] | None = None
    """Instead of the recipe's."""
    ema: float | None = None
    """Decay of the average of the weights, instead of the recipe's."""
    label_smoothing: float | None = None
    """Instead of the recipe's."""

    root: str | None = None
    """Where data sets are kept."""
    validation: float = 0.1
    """Share of the training pictures to choose on."""
    split_seed: int = 0
    """Seed of the carved splits; the same for every model and seed."""
    on_bad_image: Literal["fail", "skip"] = "fail"
    """Stop at a file that cannot be read, or pass over it."""
    augment: Augmentation | None = None
    """Instead of the recipe's."""
    image_size: int | None = None
    """Side of the picture; default: a named data set's own, 224 for pictures of one's own, or what the weights were trained at."""
    batch_size: int = 128
    """Pictures per optimizer step."""
    weight_decay: float = 0.05
    """Pull of the weights towards zero, the same for every model."""
    precision: TrainingPrecision = "auto"
    """auto: bf16 on a GPU that has it, fp32 otherwise."""
    compile: Literal["auto", "yes", "no"] = "auto"
    """auto: on a GPU. Compilation is no part of a budget, be it samples, FLOPs or seconds of training."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps; auto: a GPU where there is one."""
    threads: int = 1
    """CPU threads of one cell; results do not depend on --parallel then."""
    parallel: int | None = None
    """Cells at a time; default: as many as there are cores, one on a GPU."""
    ray: str | None = None
    """Address of a Ray cluster, or local for one of its own."""
    quiet: bool = False
    """No progress."""
    json: bool = False
    """Print the result as JSON."""

    def arguments(self) -> dict[str, Any]:
        """As the calls of `vitral.study` take them."""
        flags = {field.name: getattr(self, field.name) for field in dataclasses.fields(StudyFlags) if field.name not in ("data", "json")}
        return flags | {"models": names(self.models), "lrs": numbers(self.lrs, "--lrs")}


@dataclass(frozen=True)
class Flags(StudyFlags):
    more: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DATA…")] = ()
    """Further data sets: the same comparison on each, then one table of them all."""
    weights: Annotated[str | None, tyro.conf.arg(name="from")] = None
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

    def sources(self) -> dict[str, str]:
        pairs = [part.partition("=") for part in (self.weights or "").split(",") if part.strip()]
        if wrong := next((name for name, _, source in pairs if not source), None):
            raise UsageError(f"--from {wrong!r} names no model", "use MODEL=WEIGHTS, for example vit=timm:vit_tiny_patch16_224")
        return {name.strip(): source.strip() for name, _, source in pairs}


def run(arguments: list[str]) -> int:
    flags = parse(Flags, arguments, "vitral compare", EXAMPLES)
    from vitral.study.fight.compare import compare

    data = [flags.data, *flags.more]
    own = {"weights": flags.sources(), "tune": flags.tune, "claim": flags.claim, "pretrain": names(flags.pretrain), "vary": flags.vary}
    return show(compare(data, **own, **flags.arguments()), flags.json)


def show(result: Any, as_json: bool) -> int:
    """Print a study's result; the exit code says whether all of it is there."""
    from vitral.base.files import plain

    print(json.dumps(plain(result.values))) if as_json else tell(result)
    return 1 if result.failed else 0


def names(text: str | None) -> list[str] | None:
    return None if text is None else [name for part in text.split(",") if (name := part.strip())]


def numbers(text: str | None, flag: str) -> list[float] | None:
    if text is None:
        return None
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is not a list of numbers", "write them with commas, for example 1e-3,3e-3") from error
    if not found or not all(0 < number < math.inf for number in found):
        raise UsageError(f"{flag} {text!r} is not a list of positive numbers", "write them with commas, for example 1e-3,3e-3")
    return found
