"""What all cells of a study share: splits, augmentation, how they are trained, and where they run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from vitral.base.device import pick_device
from vitral.config import DataConfig, TrainConfig


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The same for every contender: AdamW, cosine, 5 % warm-up, no regularisation beyond weight decay, final weights."""

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
    quiet: bool = False
    """No progress."""

    def data_config(self, name: str) -> DataConfig:
        return DataConfig(name=name, root=self.root, validation=self.validation, split_seed=self.split_seed, augment=self.augment)

    def train_config(self, tune: Any = "all") -> TrainConfig:
        return TrainConfig(
            batch_size=self.batch_size,
            weight_decay=self.weight_decay,
            warmup=0.05,
            tune=tune,
            precision=self.precision,
            compile=self.compile,
            device=self.device,
            threads=self.threads,
            checkpoint_every=30.0,
        )

    def cells_at_a_time(self) -> int:
        if self.parallel is not None:
            return self.parallel
        if pick_device(self.device).type != "cpu":
            return 1
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, cores // self.threads)
