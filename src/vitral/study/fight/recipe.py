"""What all cells of a study share: splits, augmentation, how they are trained, and where they run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from vitral.base.device import pick_device
from vitral.base.errors import UsageError, one_of
from vitral.config import DataConfig, TrainConfig
from vitral.config.data import Augmentation
from vitral.config.formats import TrainingPrecision

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


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The same for every contender; final weights are judged."""

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

    def given(self) -> dict[str, Any]:
        """What was asked for instead of a recipe's own."""
        named = {name: getattr(self, name) for name in ("augment", "optimizer", "schedule", "ema", "label_smoothing")}
        return {name: value for name, value in named.items() if value is not None}

    def recipes(self) -> dict[str, dict[str, Any]]:
        """Each recipe that was asked for: settings of a training, and the augmentation."""
        names = [name for part in self.recipe.split(",") if (name := part.strip())]
        if wrong := next((name for name in names if name not in RECIPES), None):
            raise one_of("recipe", wrong, list(RECIPES))
        if not names or len(set(names)) < len(names):
            raise UsageError(f"--recipe {self.recipe!r} names no recipe, or one twice", "use plain, strong or plain,strong")
        return {name: RECIPES[name] | self.given() for name in names}

    def data_config(self, name: str) -> DataConfig:
        augment = next(iter(self.recipes().values()))["augment"]
        shared = {field: getattr(self, field) for field in ("root", "validation", "split_seed", "on_bad_image")}
        return DataConfig(name=name, augment=augment, **shared)

    def train_config(self, tune: Any = "all") -> TrainConfig:
        """What all cells share; a contender's recipe changes the rest."""
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
