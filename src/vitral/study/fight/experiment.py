"""An experiment: contenders, each with the run that its cells train, and what is equal for all. Its cells are one training each.

It refuses, before anything is spent, to choose on test images and to claim significance from one seed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from vitral.base.errors import ConfigError
from vitral.base.text import readable
from vitral.build import shadow
from vitral.config import DataConfig, ModelConfig, RunConfig, TrainConfig, from_dict, to_dict
from vitral.config.train import MANY_EPOCHS
from vitral.cost.flops import learning_passes
from vitral.data.loader import even_batches
from vitral.train.optim import choose
from vitral.train.steps import flops_without_labels

BudgetKind = Literal["samples", "epochs", "seconds", "flops"]
Role = Literal["tune", "final"]
EVALUATIONS = 10
"""Validations per run: enough for a curve, too few to cost much."""
DATA_SETTINGS = ("augment", "class_weights")
"""Settings of the data in which contenders may differ; their splits are the same."""
TEMPLATE = "contender"
"""Name of a contender's run; each cell has a name of its own."""
ALWAYS: dict[str, Any] = {"keep": "last", "test": False, "head_start": "as-is"}
"""Settings of every contender: final weights are judged, and a probe of the head would be solved outside the budget."""
_BUDGETS = "use samples=50000, epochs=10, seconds=20 or flops=1e15"
_MUON_TO_ADAM = 0.1
"""AdamW's learning rate beside Muon's, as in the run `cifar10`."""


@dataclass(frozen=True)
class Budget:
    """What every contender may spend on one final run."""

    kind: BudgetKind
    amount: float

    def __post_init__(self) -> None:
        if self.kind not in get_args(BudgetKind):
            raise ConfigError(f"budget {self.kind!r} is unknown", _BUDGETS)
        if not self.amount > 0:
            raise ConfigError(f"budget {self.kind}={self.amount:g} is not positive", "use for example samples=50000")

    @classmethod
    def parse(cls, text: str) -> Budget:
        """A budget as users type it: `samples=50000`."""
        kind, _, amount = text.partition("=")
        try:
            return cls(kind.strip(), float(amount))  # type: ignore[arg-type]
        except ValueError as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"budget {text!r} is not understood", _BUDGETS) from error

    def times(self, share: float) -> Budget:
        return Budget(self.kind, self.amount * share)

    def samples(self, flops: float, images: int) -> float | None:
        """Images a model may see of `images` different ones when each costs `flops`, forward and backward; None when only the clock
        decides."""
        by_kind = {"samples": self.amount, "epochs": self.amount * images, "flops": self.amount / flops if flops else 0.0}
        return by_kind.get(self.kind)

    @property
    def words(self) -> str:
        """`500,000 samples`, `10 s`, `5·10¹⁴ FLOPs`: for titles and sentences. `str` is what `parse` takes."""
        return f"{readable(self.amount)} {({'seconds': 's', 'flops': 'FLOPs'}).get(self.kind, self.kind)}"

    def __str__(self) -> str:
        return f"{self.kind}={self.amount:g}"


@dataclass(frozen=True)
class Source:
    """A finished cell whose weights other cells start from."""

    images: int
    """Images that it has learnt from."""
    seed: int
    folder: str = ""
    """As seen from among the cells that start from it; empty before it is trained."""


@dataclass(frozen=True)
class Contender:
    """One row of the table to come."""

    name: str
    run: RunConfig
    """What its cells train. Each cell sets its own learning rate, length, seed, subset and initialisation."""
    flops: int
    """Forward FLOPs per image."""
    lrs: tuple[float, ...] = (1e-3,)
    """Learning rates to choose from on validation; a single one is taken as it is."""
    note: str = ""
    base: str = ""
    """The model's name, where several recipes make several contenders of it."""
    starts: tuple[str, ...] = ()
    """Initialisations to choose from, together with the learning rate; none: the model's own."""
    widens: bool = False
    """Whether learning rates beyond the grid are tried while the best lies at its edge."""
    probed: bool = False
    """Judged by a linear probe of what it has learnt, not by a head of its own."""
    pretrained_from: tuple[Source, ...] = ()
    """Study of pre-training: the cells whose weights its own cells start from, one for each number of images and seed."""

    @property
    def is_tuned(self) -> bool:
        return len(self.lrs) > 1 or len(self.starts) > 1

    @property
    def is_untrained(self) -> bool:
        """It takes no step: it is judged as it starts, and spends nothing of the budget."""
        return self.run.train.epochs == 0

    @property
    def training_flops(self) -> float:
        """Forward and backward, per image."""
        return _training_flops(self.run, self.flops)

    def source(self, images: int, seed: int) -> Source | None:
        """Where a cell of this seed starts. The tuning's own seed has learnt from nothing before, so it takes any of that many images."""
        own = [source for source in self.pretrained_from if source.images == images]
        return next((source for source in own if source.seed == seed), own[0] if own else None)


@dataclass(frozen=True)
class Experiment:
    """Everything that decides the result of a study: the runs of its contenders, and what is equal for all of them."""

    kind: Literal["compare", "data", "compute", "pretraining"]
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
    """Study of pre-training: numbers of other images that were learnt from before."""
    shots: int = 0
    """Study of pre-training: images per class for a linear probe of the frozen features, beside fine-tuning; 0: no probe."""
    tuning_share: float = 0.25
    """Part of the budget that each short run that tunes the learning rate may spend."""
    tuning_seed: int = 1000
    select_on: Literal["validation", "test"] = "validation"
    claim: Literal["significance", "none"] = "significance"
    """significance: intervals and tests; none: a description."""

    @property
    def data(self) -> DataConfig:
        """The data of all contenders; they differ in `DATA_SETTINGS` at most."""
        return self.contenders[0].run.data

    @property
    def threads(self) -> int | None:
        return self.contenders[0].run.train.threads

    def __post_init__(self) -> None:
        if self.select_on != "validation":
            raise ConfigError(
                f"selection on {self.select_on}: what the test pictures have chosen they can no longer judge", "select on validation"
            )
        if not self.seeds:
            raise ConfigError("a study without seeds trains nothing", "use --seeds 3")
        if self.claim == "significance" and len(set(self.seeds)) < 2:
            raise ConfigError("one seed cannot carry a claim of significance", "use --seeds 3, or --claim none for a plain description")
        self._check_contenders()
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

    def _check_contenders(self) -> None:
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
            lrs = [f"{lr:g}" for lr in contender.lrs]
            if len(set(lrs)) != len(lrs):
                raise ConfigError(f"the learning rates of {contender.name} are not different: {', '.join(lrs)}", "name each once in --lrs")
            if fingerprint(contender.run.data) != fingerprint(self.data):
                raise ConfigError(f"{contender.name} has other splits than {names[0]}", "give all models the same data")

    def _check_steps(self, contender: Contender) -> None:
        """A run takes whole batches: one that may see less than a batch would spend more than its budget."""
        shortest = min(*self.shares, self.tuning_share if contender.is_tuned else 1.0)
        for share, images in ((shortest, self.images), (min(self.shares), min(self.sizes, default=self.images))):
            batch = even_batches(images, contender.run.train.batch_size)[1]
            samples = self.budget.times(share).samples(contender.training_flops, images)
            if samples is not None and samples < batch:
                raise ConfigError(
                    f"{self.budget} lets {contender.name} see {samples:.3g} pictures in its shortest run, less than a batch of {batch}",
                    "use a larger --budget or a smaller --batch-size",
                )

    def to_dict(self) -> dict[str, Any]:
        contenders = []
        for contender in self.contenders:
            sources = [to_dict(source) for source in contender.pretrained_from]
            contenders.append({**to_dict(contender), "pretrained_from": sources})
        return {**to_dict(self), "contenders": contenders}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training of a study."""

    contender: str
    role: Role
    run: RunConfig
    size: int
    """Training images."""
    share: float = 1.0
    """Part of the budget."""
    flops: int = 0
    """Forward FLOPs per image, with the head that the cell is judged by."""
    probed: bool = False
    """Judged by a linear probe of what it has learnt."""
    pretrained: int = 0
    """Other images that its weights had learnt from."""
    pretrained_from: str = ""
    """Folder of the finished cell whose weights it starts from, as seen from among the cells; empty: from its own."""
    shots: int = 0
    """Images per class for a linear probe of those weights, which stay as they are; 0: they learn."""

    @property
    def name(self) -> str:
        """Also the name of its folder."""
        return self.run.name

    @property
    def training_flops(self) -> float:
        """Forward and backward, per image."""
        return _training_flops(self.run, self.flops)

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
        """A cell from its file; version 0.2 wrote `begun` for `pretrained_from`, and the run's name twice."""
        old = {"begun": "pretrained_from"}
        return from_dict(cls, {old.get(name, name): value for name, value in data.items() if name != "name"}, "cell")


def tuning_cells(study: Experiment, grids: Mapping[str, Sequence[float]] | None = None) -> list[Cell]:
    """Short runs over each contender's learning rates and starts, judged on validation. They use all training images."""
    cells = []
    for contender in filter(lambda contender: contender.is_tuned, study.contenders):
        most = max((source.images for source in contender.pretrained_from), default=0)
        for start in contender.starts or (None,):
            for lr in (grids or {}).get(contender.name, contender.lrs):
                cell = _open_cell(contender, "tune", size=study.images, share=study.tuning_share, pretrained=most)
                cells.append(_settled(study, contender, cell, lr, study.tuning_seed, start))
    return cells


def final_cells(study: Experiment, lrs: Mapping[str, float], starts: Mapping[str, str] | None = None) -> list[Cell]:
    """The runs that count, each contender with its chosen learning rate and start."""
    cells = []
    for contender in study.contenders:
        trained = {(source.images, source.seed) for source in contender.pretrained_from}
        for size in study.sizes or (study.images,):
            for share in study.shares:
                for pretrained in study.pretrained if trained else (0,):
                    for shots in (0, study.shots) if trained and study.shots else (0,):
                        for seed in study.seeds:
                            if pretrained and (pretrained, seed) not in trained:
                                continue  # its pre-training failed
                            cell = _open_cell(contender, "final", size=size, share=share, pretrained=pretrained, shots=shots)
                            start = (starts or {}).get(contender.name)
                            cells.append(_settled(study, contender, cell, lrs[contender.name], seed, start))
    return cells


def _open_cell(contender: Contender, role: Role, **where: Any) -> Cell:
    return Cell(contender=contender.name, role=role, run=contender.run, flops=contender.flops, probed=contender.probed, **where)


def _settled(study: Experiment, contender: Contender, cell: Cell, lr: float, seed: int, start: str | None) -> Cell:
    """The cell with everything that decides its run."""
    run, train, budget = contender.run, contender.run.train, study.budget.times(cell.share)
    samples = budget.samples(contender.training_flops, cell.size)
    epochs = MANY_EPOCHS if samples is None else samples / per_epoch(cell.size, train.batch_size)
    epochs = 0.0 if contender.is_untrained else epochs
    # By the clock an epoch of a small subset may be a few steps: validate after as many images as in the whole set.
    often = train.evaluate_every * (study.images / cell.size) if samples is None else (epochs or 1) / EVALUATIONS
    train = dataclasses.replace(
        train,
        epochs=epochs,
        max_seconds=budget.amount if budget.kind == "seconds" and epochs else None,
        lr=lr,
        # What Muon leaves to AdamW keeps its proportion to Muon's own learning rate.
        adam_lr=lr * _MUON_TO_ADAM if train.optimizer == "muon" else train.adam_lr,
        seed=seed,
        test=cell.role == "final" and not contender.probed,  # the probe opens it
        evaluate_every=often,
    )
    # Other images for each seed: an interval over one subset would not show how lucky that subset was.
    subset = {} if cell.size == study.images else {"subset": float(cell.size), "subset_seed": seed}
    model = run.model if start is None else dataclasses.replace(run.model, initialisation=start)  # type: ignore[arg-type]
    if run.pretrain is not None:
        model = dataclasses.replace(model, classes=0)
    chosen = [start] if start is not None and len(contender.starts) > 1 else []
    before = [f"p{cell.pretrained}"] if cell.pretrained else []
    learning = [f"k{cell.shots}"] if cell.shots else [f"lr{lr:g}", *chosen]
    name = "_".join([cell.role, contender.name, *before, f"n{cell.size}", f"b{cell.share:g}", *learning, f"s{seed}"])
    settled = dataclasses.replace(run, name=_plain(name), model=model, data=dataclasses.replace(run.data, **subset), train=train)
    source = contender.source(cell.pretrained, seed)
    return dataclasses.replace(cell, run=settled, pretrained_from=source.folder if source else "")


def _plain(name: str) -> str:
    """A name as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", name.replace("/", "-").replace("_", "--"))


def _training_flops(run: RunConfig, flops: int) -> float:
    if run.pretrain is not None:
        return flops_without_labels(run.model, run.pretrain, run.train)
    return _passes(run.model, run.train.tune) * flops


@functools.cache
def _passes(config: ModelConfig, tune: str) -> float:
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
