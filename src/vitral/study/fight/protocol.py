"""The protocol of a study, as data: what is compared, on what, for how much, how often. From it follow the cells, each one training.

Refused here, before anything is spent: choosing anything on the test pictures, and a claim of significance from one seed.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from vitral.base.errors import ConfigError, DataError, UsageError
from vitral.base.layout import STUDY
from vitral.base.text import readable
from vitral.build import shadow
from vitral.config import DataConfig, ModelConfig, PretrainConfig, RunConfig, TrainConfig, from_dict, to_dict
from vitral.config.train import MANY_EPOCHS
from vitral.cost.flops import learning_passes
from vitral.data.loader import even_batches
from vitral.train.optim import choose
from vitral.train.steps import flops_without_labels

BudgetKind = Literal["samples", "epochs", "seconds", "flops"]
BUDGETS = "use samples=50000, epochs=10, seconds=20 or flops=1e15"
EVALUATIONS = 10
"""Validations per run: enough for a curve, too few to cost much."""
MUON_TO_ADAM = 0.1
"""AdamW's learning rate beside Muon's, as in the run `cifar10`."""
DATA_SETTINGS = ("augment", "class_weights")
"""What a contender's settings may change in the data that all share; the rest is the training's."""
NAMED = 4
"""Differences between two studies that are named; more would not be read."""


@dataclass(frozen=True)
class Budget:
    """What every contender may spend on one final run."""

    kind: BudgetKind
    amount: float

    def __post_init__(self) -> None:
        if self.kind not in get_args(BudgetKind):
            raise ConfigError(f"budget {self.kind!r} is unknown", BUDGETS)
        if not self.amount > 0:
            raise ConfigError(f"budget {self.kind}={self.amount:g} is not positive", "use for example samples=50000")

    @classmethod
    def parse(cls, text: str) -> Budget:
        kind, _, amount = text.partition("=")
        try:
            return cls(kind.strip(), float(amount))  # type: ignore[arg-type]
        except ValueError as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"budget {text!r} is not understood", BUDGETS) from error

    def times(self, share: float) -> Budget:
        return Budget(self.kind, self.amount * share)

    def samples(self, flops: float, images: int) -> float | None:
        """Images a model may see of `images` different ones when each costs `flops`, forward and backward; None when only the clock
        decides."""
        given = {"samples": self.amount, "epochs": self.amount * images, "flops": self.amount / flops if flops else 0.0}
        return given.get(self.kind)

    @property
    def words(self) -> str:
        """`500,000 samples`, `10 s`, `5·10¹⁴ FLOPs`: for titles and sentences. `str` is what `parse` takes."""
        return f"{readable(self.amount)} {({'seconds': 's', 'flops': 'FLOPs'}).get(self.kind, self.kind)}"

    def __str__(self) -> str:
        return f"{self.kind}={self.amount:g}"


@dataclass(frozen=True)
class Contender:
    """One row of the table to come."""

    name: str
    model: ModelConfig
    flops: int
    """Forward FLOPs per image."""
    weights: str | None = None
    """Start from these weights; None: from scratch."""
    tune: str = "all"
    """Which of its parameters learn."""
    lrs: tuple[float, ...] = (1e-3,)
    """Learning rates to choose from on validation; a single one is taken as it is."""
    family: str = ""
    """Contenders of one family lie on one line in a compute study."""
    note: str = ""
    base: str = ""
    """The model's name, where several recipes make several contenders of it."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What its recipe changes in the training that all share; DATA_SETTINGS are the data's."""
    starts: tuple[str, ...] = ()
    """Initialisations to choose from, together with the learning rate; none: the model's own."""
    widens: bool = False
    """Whether learning rates beyond the grid are tried while the best lies at its edge."""
    pretrain: PretrainConfig | None = None
    """Learn without labels, in this way; None: learn to name the classes."""
    probed: bool = False
    """Judged by a linear probe of what it has learnt, not by a head of its own."""
    untrained: bool = False
    """Judged as it starts: it takes no step, and spends nothing of the budget."""
    begun: dict[str, str] = field(default_factory=dict)
    """Pre-training study: "SIZE SEED" → the finished cell that learnt from so many other images, from whose weights this one starts; a
    folder as seen from among the study's own cells."""

    @property
    def is_tuned(self) -> bool:
        return len(self.lrs) > 1 or len(self.starts) > 1

    @property
    def training_flops(self) -> float:
        """Forward and backward, per image."""
        if self.pretrain is not None:
            shown = {name: value for name, value in self.settings.items() if name.startswith("token_drop")}
            return flops_without_labels(self.model, self.pretrain, TrainConfig(tune=self.tune, **shown))  # type: ignore[arg-type]
        return passes(self.model, self.tune) * self.flops

    def batch_size(self, shared: TrainConfig) -> int:
        return self.settings.get("batch_size", shared.batch_size)


@dataclass(frozen=True)
class Study:
    """Everything that decides the result of a study."""

    kind: Literal["compare", "data", "compute", "pretraining"]
    data: DataConfig
    contenders: tuple[Contender, ...]
    budget: Budget
    images: int
    """Training images in the whole set."""
    seeds: tuple[int, ...] = (0, 1, 2)
    sizes: tuple[int, ...] = ()
    """Data study: numbers of training images, nested and class-balanced."""
    shares: tuple[float, ...] = (1.0,)
    """Compute study: parts of the budget at which each contender is trained from the start."""
    pretrained: tuple[int, ...] = ()
    """Pre-training study: numbers of other images that were learnt from before."""
    shots: int = 0
    """Pre-training study: images a class for a linear probe of the frozen features, beside fine-tuning; 0: no probe."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """What all runs share: batch size, optimizer, schedule."""
    tuning_share: float = 0.25
    """Part of the budget that each short run that tunes the learning rate may spend."""
    tuning_seed: int = 1000
    select_on: Literal["validation", "test"] = "validation"
    claim: Literal["significance", "none"] = "significance"
    """significance: intervals and tests; none: a description."""

    def __post_init__(self) -> None:
        if self.select_on != "validation":
            raise ConfigError(
                f"selection on {self.select_on}: what the test pictures have chosen they can no longer judge", "select on validation"
            )
        if not self.seeds:
            raise ConfigError("a study without seeds trains nothing", "use --seeds 3")
        if self.claim == "significance" and len(set(self.seeds)) < 2:
            raise ConfigError("one seed cannot carry a claim of significance", "use --seeds 3, or --claim none for a plain description")
        if not self.contenders:
            raise ConfigError("a study without models", "name some with --models vit,cnn")
        names = [contender.name for contender in self.contenders]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(f"model {twice} is in the study twice", "name each model once")
        folders: dict[str, str] = {}
        for name in names:
            if (other := folders.setdefault(_plain(name), name)) != name:
                raise ConfigError(f"models {other} and {name} would share the folder names of {_plain(name)}", "rename one of them")
        for contender in self.contenders:
            if len(set(map(_lr, contender.lrs))) != len(contender.lrs):
                lrs = ", ".join(map(_lr, contender.lrs))
                raise ConfigError(f"the learning rates of {contender.name} are not different: {lrs}", "name each once in --lrs")
        if len(set(self.seeds)) != len(self.seeds):
            raise ConfigError(f"seeds {self.seeds} are not different", "use --seeds 3")
        if self.tuning_seed in self.seeds:
            raise ConfigError(f"seed {self.tuning_seed} tunes and is tested", "use another tuning seed")
        if not 0 < self.tuning_share <= 1:
            raise ConfigError(f"tuning share {self.tuning_share} does not lie in (0, 1]", "use 0.25")
        if self.kind == "data" and (len(self.sizes) < 2 or min(self.sizes) < 1 or max(self.sizes) > self.images):
            raise ConfigError(
                f"a data study needs two sizes or more between 1 and {self.images:,} pictures, got {list(self.sizes)}", "use --sizes"
            )
        if self.kind == "compute" and self.budget.kind == "seconds":
            raise ConfigError("a compute study counts FLOPs or samples, not seconds", "use --budget samples=… or flops=…")
        for contender in self.contenders:
            self._check_steps(contender)

    def _check_steps(self, contender: Contender) -> None:
        """A run takes whole batches: one that may see less than a batch would spend more than it is said to."""
        shortest = min(*self.shares, self.tuning_share if contender.is_tuned else 1.0)
        for share, images in ((shortest, self.images), (min(self.shares), min(self.sizes, default=self.images))):
            batch = even_batches(images, contender.batch_size(self.train))[1]
            samples = self.budget.times(share).samples(contender.training_flops, images)
            if samples is not None and samples < batch:
                raise ConfigError(
                    f"{self.budget} lets {contender.name} see {samples:.3g} pictures in its shortest run, less than a batch of {batch}",
                    "use a larger --budget or a smaller --batch-size",
                )

    def to_dict(self) -> dict[str, Any]:
        plain = to_dict(self)
        return {**plain, "contenders": [to_dict(contender) for contender in self.contenders]}


@dataclass(frozen=True)
class Cell:
    """One training of a study."""

    name: str
    """Also the name of its folder."""
    contender: str
    role: Literal["tune", "final"]
    run: RunConfig
    size: int
    """Training images."""
    share: float = 1.0
    """Part of the budget."""
    flops: int = 0
    probed: bool = False
    """Judged by a linear probe of what it has learnt."""
    begun: str = ""
    """It starts from the weights of this finished cell: a folder as seen from among the cells; empty: from its own."""
    pretrained: int = 0
    """Other images that cell had learnt from."""
    shots: int = 0
    """Images a class for a linear probe of those weights, which stay as they are; 0: they learn."""

    @property
    def training_flops(self) -> float:
        """Forward and backward, per image."""
        if self.run.pretrain is not None:
            return flops_without_labels(self.run.model, self.run.pretrain, self.run.train)
        return passes(self.run.model, self.run.train.tune) * self.flops

    @property
    def seed(self) -> int:
        return self.run.train.seed

    @property
    def lr(self) -> float:
        return self.run.train.lr

    def to_dict(self) -> dict[str, Any]:
        return to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Cell:
        return from_dict(cls, data, "cell")


def tuning_cells(study: Study, grids: Mapping[str, Sequence[float]] | None = None) -> list[Cell]:
    """Short runs over each contender's learning rates and starts, judged on validation. They use all training images."""
    return [
        _cell(study, contender, "tune", lr, start, study.tuning_seed, study.images, study.tuning_share, most_pretrained(contender))
        for contender in study.contenders
        if contender.is_tuned
        for start in contender.starts or (None,)
        for lr in (grids or {}).get(contender.name, contender.lrs)
    ]


def final_cells(study: Study, lrs: Mapping[str, float], starts: Mapping[str, str] | None = None) -> list[Cell]:
    """The runs that count, each contender with its chosen learning rate and start."""
    return [
        _cell(study, contender, "final", lrs[contender.name], (starts or {}).get(contender.name), seed, size, share, pretrained, shots)
        for contender in study.contenders
        for size in (study.sizes or (study.images,))
        for share in study.shares
        for pretrained in (study.pretrained if contender.begun else (0,))
        for shots in ((0, study.shots) if contender.begun and study.shots else (0,))
        for seed in study.seeds
        if not pretrained or start_key(pretrained, seed) in contender.begun  # its pre-training may have failed
    ]


def start_key(pretrained: int, seed: int) -> str:
    return f"{pretrained} {seed}"


def most_pretrained(contender: Contender) -> int:
    """The largest pre-training that a contender can start from."""
    return max((int(key.split()[0]) for key in contender.begun), default=0)


def _cell(
    study: Study,
    contender: Contender,
    role: Literal["tune", "final"],
    lr: float,
    start: str | None,
    seed: int,
    size: int,
    share: float,
    pretrained: int = 0,
    shots: int = 0,
) -> Cell:
    budget = study.budget.times(share)
    samples = budget.samples(contender.training_flops, size)
    epochs = MANY_EPOCHS if samples is None else samples / per_epoch(size, contender.batch_size(study.train))
    epochs = 0.0 if contender.untrained else epochs
    # By the clock an epoch of a small subset may be a few steps: validate after as many images as in the whole set.
    often = contender.settings.get("evaluate_every", study.images / size) if samples is None else (epochs or 1) / EVALUATIONS
    of_data = {name: value for name, value in contender.settings.items() if name in DATA_SETTINGS}
    recipe = dataclasses.replace(study.train, **{name: value for name, value in contender.settings.items() if name not in of_data})
    if recipe.optimizer == "muon":  # what Muon leaves to AdamW keeps its proportion to Muon's own lr
        recipe = dataclasses.replace(recipe, adam_lr=lr * MUON_TO_ADAM)
    train = dataclasses.replace(
        recipe,
        epochs=epochs,
        max_seconds=budget.amount if budget.kind == "seconds" and epochs else None,
        lr=lr,
        tune=contender.tune,  # type: ignore[arg-type]
        head_start=study.train.head_start or "as-is",  # a probe would be solved outside the budget
        seed=seed,
        keep="last",
        test=role == "final" and not contender.probed,  # the probe opens it
        evaluate_every=often,
    )
    data = dataclasses.replace(study.data, **of_data)
    # Other pictures for each seed: else an interval would be that of one subset, and say nothing of how lucky it was.
    data = data if size == study.images else dataclasses.replace(data, subset=float(size), subset_seed=seed)
    chosen = [start] if start is not None and len(contender.starts) > 1 else []
    before = [f"p{pretrained}"] if pretrained else []
    learning = [f"k{shots}"] if shots else [f"lr{_lr(lr)}", *chosen]
    name = _plain("_".join([role, contender.name, *before, f"n{size}", f"b{share:g}", *learning, f"s{seed}"]))
    model = contender.model if start is None else dataclasses.replace(contender.model, initialisation=start)  # type: ignore[arg-type]
    if contender.pretrain is not None:
        model = dataclasses.replace(model, classes=0)
    run = RunConfig(name=name, model=model, data=data, train=train, weights=contender.weights, pretrain=contender.pretrain)
    # To tune, any of those that are there: the tuning's own seed has learnt from nothing before.
    known = contender.begun.get(start_key(pretrained, seed)) or next(
        (where for key, where in contender.begun.items() if int(key.split()[0]) == pretrained), ""
    )
    return Cell(name, contender.name, role, run, size, share, contender.flops, contender.probed, known, pretrained, shots)


def _plain(name: str) -> str:
    """A name as it stands in the name of a folder."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", name.replace("/", "-").replace("_", "--"))


def _lr(lr: float) -> str:
    return f"{lr:g}"


@functools.cache
def passes(config: ModelConfig, tune: str) -> float:
    """Forward passes that learning from one image costs."""
    model = shadow(config)
    choose(model, TrainConfig(tune=tune))  # type: ignore[arg-type]
    return learning_passes(model, (config.channels, *config.image_size))


def per_epoch(size: int, batch: int) -> int:
    """Images that an epoch shows, in whole batches."""
    return math.prod(even_batches(size, batch))


def fingerprint(data: DataConfig) -> str:
    """What must be the same for two accuracies to stand in one table; the training subset may differ."""
    return f"{data.name}, validation {data.validation:g}, split seed {data.split_seed}"


def check_same(wanted: Study, found: Any, where: str) -> None:
    """A folder holds one study: going on with another one would mix their cells."""
    if not isinstance(found, dict) or not {"kind", "data"} & set(found):
        raise DataError(f"{where} holds a damaged {STUDY}", "choose another --out")
    if different := list(_differences(json.loads(json.dumps(wanted.to_dict())), found)):
        more = f"; {len(different) - NAMED} more" if len(different) > NAMED else ""
        raise UsageError(
            f"{where} holds another study (different: {'; '.join(different[:NAMED])}{more})",
            "choose another --out, or the same settings to go on",
        )


def _differences(wanted: Any, found: Any, place: str = "") -> Iterator[str]:
    """`train.weight_decay 0.05, now 0.1` for each leaf that is not the same."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted({*found, *wanted}):
            yield from _differences(wanted.get(key), found.get(key), f"{place}.{key}" if place else key)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found) and any(isinstance(x, dict) for x in wanted):
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from _differences(one, other, f"{place}[{index}]")
    elif wanted != found:
        yield f"{place} {_short(found)}, now {_short(wanted)}"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(str(item["name"]) if isinstance(item, dict) and "name" in item else _short(item) for item in value) or "none"
    text = f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
