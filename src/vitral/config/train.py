"""How the one loop runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vitral.base.errors import ConfigError
from vitral.base.settings import at_least, check_share, check_values, lists_as_tuples
from vitral.config.formats import TrainingPrecision

MANY_EPOCHS = 1e5
"""More than anybody means: a run of so many is ended by its seconds."""


@dataclass(frozen=True)
class TrainConfig:
    """How the one loop runs."""

    epochs: float = 20
    """Epochs; fractions allowed. 0: the model as it starts, for comparison."""
    max_seconds: float | None = None
    """Stop (with the schedule scaled to it) after this training time; for studies with a budget of seconds."""
    batch_size: int = 128
    """Images per optimizer step, over all processes."""
    accumulate: int = 1
    """Split each batch into this many micro-batches to save memory; the result is the same."""
    optimizer: Literal["adamw", "sgd", "muon"] = "adamw"
    """Optimizer; muon: batched Muon for the matrices of the blocks and the filters of convolutions, AdamW for the rest."""
    lr: float = 1e-3
    """Peak learning rate; with muon, of its matrices."""
    adam_lr: float = 2e-3
    """Peak learning rate of what Muon leaves to AdamW."""
    weight_decay: float = 0.05
    """Pull of the weights towards zero, times the learning rate."""
    momentum: float = 0.95
    """Of SGD and of Muon."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of AdamW's two averages, of the gradient and of its square."""
    schedule: Literal["cosine", "linear", "step", "constant"] = "cosine"
    """How the learning rate falls after the warm-up; step: at the milestones."""
    warmup: float = 0.05
    """Share of all steps with a linearly rising learning rate."""
    milestones: tuple[float, ...] = (0.55, 0.83)
    """For schedule = step: shares of the run after which the learning rate is multiplied by `decay`."""
    decay: float = 0.1
    """For schedule = step: what the learning rate is multiplied by."""
    final_lr: float = 0.0
    """Share of the peak learning rate that cosine and linear end at."""
    layer_decay: float = 1.0
    """Learning rate of each block relative to the one above it; 1: all alike."""
    clip: float | None = 1.0
    """Largest gradient norm; None: unclipped."""
    label_smoothing: float = 0.0
    """Share of the target spread over all classes."""
    mixing_off: float = 0.0
    """Last share of the run without MixUp and CutMix."""
    ema: float | None = None
    """Decay of the exponential moving average (EMA) of the weights; None: no EMA. When set, it is what is evaluated and saved."""
    keep: Literal["last", "best"] = "last"
    """Which weights are final: the last ones, or those best on validation."""
    patience: int | None = None
    """Stop after this many evaluations without a better validation accuracy."""
    tune: Literal["all", "attention", "head", "lora"] = "all"
    """Parameters to train; attention and lora train the head too. lora: thin matrices beside those of the weights, which stay as they
    are; what is saved is the sum of both (--set lora_rank=8 lora_where=attention)."""
    lora_rank: int = 8
    """For tune = lora: rows of each thin matrix; more can learn more."""
    lora_where: Literal["attention", "mlp", "all"] = "attention"
    """For tune = lora: which matrices get a thin pair: attention's, the MLPs', or both."""
    lora_alpha: float = 16.0
    """For tune = lora: the pair counts by this number over the rank."""
    head_start: Literal["as-is", "probe", "probe+mean"] | None = None
    """How the head of a fine-tuned model starts: as-is: from the weights where the classes are as many, else new; or as a linear probe
    of the frozen features, which keeps them from being spoilt when there are few pictures; +mean: it also reads the mean of the patches.
    None: as a probe where the pictures are few and the head would be new, else as-is."""
    teacher: str | None = None
    """A model to distil from: anything `vitral.load` takes, of any size and with other classes too."""
    distil: Literal["answers", "features"] | None = None
    """What is learnt from the teacher: its answers, among the classes that both know by name; or its features, which a linear map
    of the student's is turned towards. None: answers where it knows half of the classes or more, else features."""
    teacher_weight: float = 0.5
    """Share of the loss that comes from the teacher."""
    teacher_temperature: float = 1.0
    """Softens both answers before they are compared; above 1 the teacher's second thoughts count more."""
    token_drop: float = 0.0
    """Share of patches left out, other ones for each picture, until `token_drop_until`: cheaper steps, and a regulariser."""
    token_drop_until: float = 0.5
    """Share of the run after which the model sees all patches, or all but `token_drop_after`."""
    token_drop_after: float = 0.0
    """Share of patches left out from then on."""
    precision: TrainingPrecision = "auto"
    """auto: bf16 on a GPU that has it, fp32 otherwise."""
    compile: Literal["auto", "yes", "no", "max"] = "auto"
    """auto: on a GPU; max: the compiler also tries out kernels, for long runs."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps; auto: a GPU where there is one."""
    threads: int | None = None
    """CPU threads; None: one for a tiny model, else torch's own choice. Fixed numbers make runs repeatable bit for bit."""
    seed: int = 0
    """Seed for initial weights, data order and augmentation."""
    test: bool = True
    """Open the test split at the end; off for runs that only choose a setting: they end with validation."""
    evaluate_every: float = 1.0
    """Epochs between validations; without labels there are eight in a run at the least, however few its epochs."""
    checkpoint_every: float = 60.0
    """Seconds between resumable checkpoints (0: every step); one is also written when a run is interrupted and at its end."""
    snapshots: int = 0
    """Weight snapshots to keep at log-spaced steps; for films."""
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """Under torchrun: DDP, or FSDP2 with sharded weights; auto: DDP."""
    tensorboard: bool = False
    """Write the journal for TensorBoard too, into the run folder."""
    wandb: bool = False
    """Send the journal to Weights & Biases too."""

    @property
    def ends_by_steps(self) -> bool:
        """Not by the clock alone."""
        return self.max_seconds is None or self.epochs < MANY_EPOCHS

    def __post_init__(self) -> None:
        lists_as_tuples(self)
        check_values(self)
        for name in ("batch_size", "accumulate"):
            at_least(self, name, 1)
        if self.epochs < 0:
            raise ConfigError(f"epochs {self.epochs} is negative", "use 1 or more, a fraction such as 0.5, or 0 for the model as it starts")
        if self.batch_size % self.accumulate:
            raise ConfigError(
                f"batch_size {self.batch_size} cannot be split into {self.accumulate} equal micro-batches",
                "choose accumulate as a divisor of the batch size",
            )
        if self.lr <= 0 or self.adam_lr <= 0:
            raise ConfigError("the learning rate must be positive", "use something like 1e-3")
        for name in (
            "warmup",
            "label_smoothing",
            "mixing_off",
            "token_drop",
            "token_drop_until",
            "token_drop_after",
            "teacher_weight",
            "final_lr",
        ):
            check_share(self, name, closed=name in ("teacher_weight", "token_drop_until", "mixing_off"))
        if self.ema is not None and not 0 < self.ema < 1:
            raise ConfigError(f"ema {self.ema} does not lie between 0 and 1", "use something like 0.999, or leave it out")
        if self.evaluate_every <= 0:
            raise ConfigError(f"evaluate_every {self.evaluate_every} is not positive", "use 1 for every epoch")
        if self.weight_decay < 0:
            raise ConfigError(f"weight_decay {self.weight_decay} is negative", "use something like 0.05, or 0 for none")
        for name in ("clip", "max_seconds"):
            if (value := getattr(self, name)) is not None and value <= 0:
                raise ConfigError(f"{name} {value} is not positive", "use more than 0, or leave it out")
        for name in ("patience", "threads"):
            if getattr(self, name) is not None:
                at_least(self, name, 1)
        at_least(self, "snapshots", 0)
        at_least(self, "lora_rank", 1)
        if self.lora_alpha <= 0:
            raise ConfigError(f"lora_alpha {self.lora_alpha} is not positive", "use twice the rank or so")
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(f"layer_decay {self.layer_decay} does not lie in (0, 1]", "use something like 0.75, or 1 for none")
