"""vitral compare DATA: several models under one budget, a fair fight."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from vitral.base.errors import UsageError
from vitral.config import DataConfig, TrainConfig

EXAMPLES = """Several models under one budget: same splits, augmentation and tuning effort, several seeds, test opened once per run.

Examples:
  vitral compare digits --models vit,cnn,hybrid --budget samples=50000 --out runs/fight
  vitral compare cifar10 --models vit,cnn,resnet18,hybrid --budget seconds=20 --batch-size 512 --parallel 4
  vitral compare cifar100 flowers102 folder:photos --from vit=timm:vit_base_patch16_224,resnet=torchvision:resnet152 --tune attention
  vitral compare digits --models vit,cnn --ray local --json

The same command again goes on where it was stopped.
"""


@dataclass(frozen=True)
class StudyFlags:
    """What compare and scale share."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A name from `vitral data list` or folder:PATH."""
    models: str | None = None
    """Names with commas: vit, vit-small, vit-large, hybrid, cnn, resnet18, s/4 …; vit is a ViT made for the data's size."""
    budget: str = "samples=50000"
    """What one final run may spend: samples=50000, seconds=20 or flops=1e15."""
    seeds: int = 3
    """Final runs per model (and size)."""
    rates: str | None = None
    """Learning rates to choose from on validation, with commas; one rate: no tuning. Default: 3e-4,1e-3,3e-3."""
    tuning_share: float = 0.25
    """Part of the budget that each tuning run may spend."""
    out: str | None = None
    """The study's folder; default runs/VERB-DATA. A study in it goes on."""
    root: str | None = None
    """Where data sets are kept."""
    validation: float = 0.1
    """Share of the training pictures to choose on."""
    split_seed: int = 0
    """Seed of the carved splits; the same for every model and seed."""
    augment: str = "standard"
    """The same for every model: none, light, standard, strong …"""
    image_size: int | None = None
    """Side of the picture; default: the data's own, or what the weights were trained at."""
    batch_size: int = 128
    """Pictures per optimizer step."""
    weight_decay: float = 0.05
    """Pull of the weights towards zero, the same for every model."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """auto: bf16 on a GPU that has it, fp32 otherwise."""
    compile: Literal["auto", "yes", "no"] = "no"
    """Worth it for runs of minutes; short cells are over before it pays."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps; auto: a GPU where there is one."""
    threads: int = 1
    """CPU threads of one cell; results do not depend on --parallel then."""
    parallel: int | None = None
    """Cells at a time; default: as many as there are cores, one on a GPU."""
    ray: str | None = None
    """Address of a Ray cluster, or local for one of its own."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """No progress."""

    def data_config(self, name: str | None = None) -> DataConfig:
        return DataConfig(
            name=name or self.data, root=self.root, validation=self.validation, split_seed=self.split_seed, augment=self.augment
        )

    def recipe(self, tune: str = "all") -> TrainConfig:
        from dataclasses import replace

        from vitral.study.compare import default_recipe

        return replace(
            default_recipe(),
            batch_size=self.batch_size,
            weight_decay=self.weight_decay,
            precision=self.precision,
            compile=self.compile,
            device=self.device,
            threads=self.threads,
            tune=tune,  # type: ignore[arg-type]
        )

    def names(self) -> list[str] | None:
        return None if self.models is None else [name for part in self.models.split(",") if (name := part.strip())]

    def grid(self) -> list[float] | None:
        return None if self.rates is None else numbers(self.rates, "--rates")

    def folder(self, verb: str, *data: str) -> str:
        from vitral.study.compare_across_data import folder_name

        return self.out or "-".join([f"runs/{verb}", *map(folder_name, data or (self.data,))])

    def at_a_time(self) -> int:
        if self.parallel is not None:
            return self.parallel
        from vitral.base.device import pick_device

        if pick_device(self.device).type != "cpu":
            return 1
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, cores // self.threads)


@dataclass(frozen=True)
class Flags(StudyFlags):
    more: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DATA…")] = ()
    """Further data sets: the same comparison on each, then one table of them all."""
    weights: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """Weights to start from: MODEL=WEIGHTS with commas; WEIGHTS is anything `vitral eval` takes. Without --models, these are compared."""
    tune: Literal["all", "attention", "head"] = "all"
    """Which parameters learn in models that start from weights; a model without attention learns wholly instead."""
    claim: Literal["auto", "significance", "none"] = "auto"
    """significance needs two seeds or more; none: a description without intervals and tests."""

    def sources(self) -> dict[str, str]:
        pairs = [part.partition("=") for part in (self.weights or "").split(",") if part.strip()]
        if wrong := next((name for name, _, source in pairs if not source), None):
            raise UsageError(f"--from {wrong!r} names no model", "use MODEL=WEIGHTS, for example vit=timm:vit_tiny_patch16_224")
        return {name.strip(): source.strip() for name, _, source in pairs}


def run(arguments: list[str]) -> int:
    from vitral.cli.parsing import parse

    flags = parse(Flags, arguments, "vitral compare", EXAMPLES)
    from vitral.base.files import plain
    from vitral.study.cells import Budget
    from vitral.study.compare import compare, plan_compare
    from vitral.study.compare_across_data import Several, compare_several
    from vitral.study.conduct import Pool

    sources, data = flags.sources(), (flags.data, *flags.more)
    studies = [
        plan_compare(
            flags.data_config(name),
            flags.names() or list(sources) or ["vit", "cnn", "resnet18", "hybrid"],
            Budget.parse(flags.budget),
            seeds=flags.seeds,
            train=flags.recipe(flags.tune),
            rates=flags.grid(),
            tuning_share=flags.tuning_share,
            weights=sources,
            image_size=flags.image_size,
            claim=flags.claim,
        )
        for name in data
    ]
    out, pool = flags.folder("compare", *data), Pool(flags.at_a_time(), flags.ray, flags.quiet)
    result = compare(studies[0], out, pool) if len(studies) == 1 else compare_several(studies, out, pool)
    if flags.json:
        print(json.dumps(plain(result.result)))
    elif isinstance(result, Several):
        print(f"{result.text()}\n{result.folder}")
    else:
        print(f"{result.table.text()}\n{result.conclusion}\n\n{result.folder}")
    return 1 if result.result["failed"] else 0


def numbers(text: str, flag: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is not a list of numbers", "write them with commas, for example 1e-3,3e-3") from error
    if not found or not all(0 < number < math.inf for number in found):
        raise UsageError(f"{flag} {text!r} is not a list of positive numbers", "write them with commas, for example 1e-3,3e-3")
    return found
