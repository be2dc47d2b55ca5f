"""What an experienced eye sees before and during a run, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from vitral.base.layout import METRICS
from vitral.base.text import byte_size, counted, duration, few, percent
from vitral.config import RunConfig
from vitral.data.splits.open import Data
from vitral.run.folder import RunFolder
from vitral.run.survey import row_of

if TYPE_CHECKING:
    from vitral.train.prepare import Setup

MANY = 4096
"""Patches above which a step takes seconds even on a GPU: rarely meant, easily had with weights of small patches."""
GAP = 0.15
"""Training accuracy this far above validation is learning by heart."""


def before(setup: Setup) -> list[str]:
    """Notes on a run that is about to begin; those on the data (skipped pictures, left-out files) were said when it was opened."""
    config, origin = setup.config, setup.model.origin
    notes = [*setup.notes, *of_config(config)]
    if config.weights is not None:
        given = [name for name in ("mean", "std") if getattr(config.data, name) is not None]
        notes += [
            f"{name} = {getattr(config.data, name)} was set by hand: it replaces what the weights were trained with" for name in given
        ]
        notes += [line for line in origin.assumptions() if line.startswith(("mean", "std"))]
        notes += _trained_on(config, setup.data)
    if not len(setup.data.validation):
        notes.append("no validation pictures: the run learns from all it may, and its curve is of augmented training pictures alone")
    names = setup.data.class_names
    if names and config.weights is None and config.model.family == "vit" and (each := setup.data.train.counts().mean()) < 50:
        few_each = f"{counted(round(each), 'picture')} a class"
        notes.append(f"{few_each}: few for a ViT from scratch; start from weights (--from) or strengthen the augmentation")
    notes += _hardly_there(setup.data)
    if setup.data.train.imbalance() > 5 and not config.data.class_weights:
        notes.append(f"the largest class has {setup.data.train.imbalance():.0f} times the pictures of the smallest: try --class-weights")
    return notes


def headline(setup: Setup, total: int, step: int) -> str:
    """One line before the first step: what learns, where, for how long."""
    config, device, (every, learning) = setup.config, setup.device, parameters(setup.model)
    train = config.train
    which = f"{learning:,} of {every:,} parameters learn ({train.tune})" if learning != every else f"{every:,} parameters learn"
    resumed = f", going on at step {step:,}" if step else ""
    threads = f" ({train.threads} thread{'s' * (train.threads > 1)})" if train.threads and device.type == "cpu" else ""
    length = counted(total, "step") if train.ends_by_steps else f"{duration(train.max_seconds)} of steps"
    size = byte_size(train.snapshots * sum(value.numel() * value.element_size() for value in setup.model.state_dict().values()))
    snapshots = f", {train.snapshots} snapshots ({size} on the disk)" if train.snapshots else ""
    return f"{config.name}: {which}, {len(setup.data.train):,} pictures, {length} on {device.type}{threads}{snapshots}{resumed}"


def parameters(model: nn.Module) -> tuple[int, int]:
    """(all, those that learn)."""
    every = list(model.parameters())
    return sum(p.numel() for p in every), sum(p.numel() for p in every if p.requires_grad)


def _hardly_there(data: Data) -> list[str]:
    """Classes that cannot be learnt, or of which nobody will see how well."""
    if not data.class_names:
        return []
    counts, unseen = data.train.counts(), (data.validation.counts() == 0) & (len(data.validation) > 0)
    kinds = {
        "no picture to learn from": counts == 0,
        "a single picture to learn from and none to validate on": (counts == 1) & unseen,
        "a single picture to learn from": (counts == 1) & ~unseen,
        "no picture to validate on": (counts > 1) & unseen,
    }
    named = {said: [data.class_names[label] for label in np.flatnonzero(found)] for said, found in kinds.items()}
    return [
        f"{len(names)} class{'es' * (len(names) > 1)} with {said}: {few(names)}; add pictures" for said, names in named.items() if names
    ]


def _trained_on(config: RunConfig, data: Data) -> list[str]:
    """The weights are those of a run on the same data: what is carried over from it, and what is not."""
    earlier = RunFolder(str(config.weights))
    is_run = earlier.exists and earlier.has_model and (earlier.path / METRICS).is_file()  # else a model that was saved or downloaded
    if not is_run or earlier.settled.data.name != config.data.name:
        return []
    train, done = config.train, row_of(earlier.path).epochs
    length = f"{train.epochs:g} epoch{'s' * (train.epochs != 1)}" if train.ends_by_steps else duration(train.max_seconds)
    schedule = f"a fresh {train.schedule} schedule over {length}, peak learning rate {train.lr:g}"
    notes = [f"trains on from the final weights of {earlier.path} ({done:g} epoch{'s' * (done != 1)}) with {schedule}"]
    carved = ("validation", "split_seed", "stage")
    if any(getattr(earlier.settled.data, name) != getattr(config.data, name) for name in carved):
        notes.append(f"its pictures are divided in another way than in {earlier.path}: what is tested may have been learnt there")
    elif (before := earlier.learnt.splits) and (now := data.seen()) and _elsewhere(before["train"], *now.values()):
        notes.append(f"its pictures are others than those of {earlier.path}: what is tested now may have been learnt there")
    return notes


def _elsewhere(before: np.ndarray, *now: np.ndarray) -> bool:
    """Whether a picture that was learnt from is in none of these splits: then it may be a test picture, or gone."""
    return not np.isin(before[:, 0], np.concatenate(now)[:, 0]).all()


def copied(data: Data, split: str) -> list[str]:
    """An accuracy on pictures that were learnt is not one on new pictures."""
    if not (count := data.copies.get(split, 0)):
        return []
    of = f"{count:,} of the {len(data.open(split)):,} {split} pictures"
    return [f"{of} are copies of training pictures: `vitral data check {data.name}` shows them"]


def of_config(config: RunConfig) -> list[str]:
    """What the settings alone show."""
    notes, model, train = [], config.model, config.train
    transformer = model.is_transformer
    if transformer and train.warmup == 0 and train.optimizer != "sgd" and train.lr >= 1e-3 and train.tune != "head":
        notes.append(f"no warm-up at a learning rate of {train.lr:g}: transformers often diverge or stall so; try --warmup 0.05")
    if transformer and model.grid[0] * model.grid[1] < 16:
        notes.append(f"{model.grid[0] * model.grid[1]} patches are few for attention to work on: use a smaller patch or a larger picture")
    if transformer and model.grid[0] * model.grid[1] > MANY:
        notes.append(
            f"{model.grid[0] * model.grid[1]:,} patches a picture: attention costs their square; use a larger patch or --image-size"
        )
    if transformer and model.norm_order == "post" and train.warmup < 0.05:
        notes.append("post-norm needs a long warm-up: try --warmup 0.1")
    if config.weights is not None and train.tune == "all" and train.optimizer == "adamw" and train.lr > 1e-3:
        notes.append(f"a learning rate of {train.lr:g} on all pretrained weights forgets them: try --lr 1e-4")
    if train.ema is not None and train.ema > 0.9999:
        notes.append(f"an EMA with decay {train.ema} looks back more than 10,000 steps: is the run that long?")
    return notes


def during(config: RunConfig, training: float | None, validation: float, progress: float) -> str:
    """A note on the run so far, or nothing. Augmented and mixed pictures are harder, so training accuracy is a lower bound."""
    if training is None or progress < 0.2 or training - validation < GAP:
        return ""
    advice = "stronger augmentation (--augment strong)" if config.data.augment != "strong" else "more weight decay or drop_path"
    far = f"training accuracy {percent(training)} is far above validation {percent(validation)}: the model learns by heart"
    return f"{far}; try {advice}, or stop earlier (--patience)"
