"""Asked → settled: what the user left open becomes what the data, the weights and the machine say. The only place that settles.

settled, notes, new_head = resolve(asked, facts)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch

from vitral.base.errors import ConfigError
from vitral.config import STEM_REDUCTION, TUNED, ModelConfig, RunConfig, TrainConfig
from vitral.cost.flops import forward_flops
from vitral.cost.precision import DTYPES, dtype_of
from vitral.cost.time import TINY
from vitral.data.loader import even_batches

PATCHES = (2, 4, 8, 14, 16, 32)
"""Sides that a patch may grow to."""
MOST_PATCHES = 256
"""A model that takes the size of its data gets larger patches beyond this many."""
CONVERTED = (1, 3)
"""Channels of images that become each other: grey and colour."""
FEW_IMAGES = 10_000
"""Up to so many, features that were learnt elsewhere are better than what a new head makes of them while it is still random, and a
probe of them costs less than an epoch (Flowers-102, 1,020 images: 97.2 against 95.7 %). With 45,000 (CIFAR-10) they must move anyway:
a probe has 91 %, fine-tuning 97.7 % with a new head (docs/LOG.md)."""


@dataclass(frozen=True)
class Facts:
    """What a run must know of its data, its weights and its machine before anything is built."""

    classes: int
    channels: int
    image_size: tuple[int, int]
    """Of its images where they are all alike, else what photographs are shown at."""
    images: int
    """That it learns from."""
    multi_label: bool = False
    """Each image may have several labels."""
    weights: ModelConfig | None = None
    """The model of the weights it starts from."""
    head: Literal["same", "other", "unnamed"] = "unnamed"
    """The classes of the weights: those of the data, others by name, or without names."""
    untrained: bool = False
    """The weights are random numbers, and so are their features."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    processes: int = 1
    """That share each batch."""


class Resolved(NamedTuple):
    config: RunConfig
    """Settled: nothing is open."""
    notes: tuple[str, ...] = ()
    """What was chosen for the user, or is not as it was asked for."""
    new_head: bool = False
    """The weights answer with as many classes, but with others: their head is not kept."""


def check_scratch(train: TrainConfig) -> None:
    """What a run without weights cannot be asked for."""
    if train.tune == "lora":
        raise ConfigError("tune = lora without weights would freeze random numbers", "name weights with --from, or leave --tune out")


def resolve(asked: RunConfig, facts: Facts) -> Resolved:
    """The run that `asked` becomes."""
    if facts.multi_label and asked.train.teacher is not None and asked.train.distil == "answers":
        raise ConfigError("a teacher's answers are of one class a picture, the data has several labels", "set distil = features")
    if facts.weights is not None:
        settled, notes = _head_start(asked, facts, facts.weights)
        settled = dataclasses.replace(settled, model=_of_weights(settled, facts, facts.weights))
    else:
        check_scratch(asked.train)
        settled, notes = _fitted(_starting(asked, asked.train.head_start or "as-is"), facts)
    settled, even = _even_batches(settled, facts)
    new_head = facts.head == "other" and facts.weights is not None and facts.weights.classes == facts.classes
    new_head = new_head and asked.train.head_start is None and not facts.untrained
    return Resolved(on_machine(settled, facts.device), (*notes, *even), new_head)


def on_machine(config: RunConfig, device: torch.device) -> RunConfig:
    """The same run with the threads and the precision that this device takes where they are left open.

    A tiny model has one CPU thread, any other PyTorch's choice (None). The model alone decides, not how busy the machine is: the last
    bits of a sum depend on it.
    """
    train, model = config.train, config.model
    precision, threads = train.precision, train.threads
    if precision == "auto":
        dtype = dtype_of("auto", device)
        precision = next(name for name in DTYPES if DTYPES[name] == dtype)
    if threads is None and device.type == "cpu" and model.family != "own" and forward_flops(model) * train.batch_size <= TINY:
        threads = 1
    return dataclasses.replace(config, train=dataclasses.replace(train, precision=precision, threads=threads))


def _fitted(asked: RunConfig, facts: Facts) -> tuple[RunConfig, tuple[str, ...]]:
    """A model from scratch in the size, the channels and the classes of the data, where it leaves them open."""
    model = dataclasses.replace(asked.model, classes=facts.classes, channels=asked.model.channels or facts.channels)
    if "image_size" not in asked.model.left_open:
        return dataclasses.replace(asked, model=model), ()
    fitted = fit_to_size(model, facts.image_size)
    return dataclasses.replace(asked, model=fitted), _grown_patches(asked.model, fitted)


def _even_batches(config: RunConfig, facts: Facts) -> tuple[RunConfig, tuple[str, ...]]:
    """Batches that leave out no image of a small set, and a note on it."""
    asked = config.train.batch_size
    steps, size = even_batches(facts.images, asked, config.train.accumulate * facts.processes)
    if size == asked:
        return config, ()
    batches = f"{steps} batches" if steps > 1 else "1 batch"
    note = f"{batches} of {size} an epoch, not of {asked}: so all {facts.images} pictures are learnt from in each"
    return dataclasses.replace(config, train=dataclasses.replace(config.train, batch_size=size)), (note,)


def _starting(run: RunConfig, head: Literal["as-is", "probe", "probe+mean"]) -> RunConfig:
    return dataclasses.replace(run, train=dataclasses.replace(run.train, head_start=head))


def _head_start(asked: RunConfig, facts: Facts, weights: ModelConfig) -> tuple[RunConfig, tuple[str, ...]]:
    """How the head starts where the user leaves it open, and why so."""
    images = f"{facts.images:,} pictures"
    if asked.train.head_start is not None:
        return asked, ()
    if facts.untrained and asked.pretrain is None:  # fitted to random features, a head would start far too large
        return _starting(asked, "as-is"), ()
    if facts.head == "same" and asked.pretrain is None:
        return _starting(asked, "as-is"), ("the weights know these classes: their head is kept (--head-start probe makes it anew)",)
    if asked.pretrain is not None or weights.head_hidden or weights.distillation_token or not weights.head_bias:
        return _starting(asked, "as-is"), ()  # no head, or no single layer that could be a probe
    if facts.images > FEW_IMAGES:
        why = f"{images} are enough to move all features (--head-start probe starts it as a linear probe)"
        return _starting(asked, "as-is"), (f"the head starts new: {why}",)
    why = f"{images} are few, and a new head would spoil good features before it has learnt anything (--head-start as-is does so)"
    return _starting(asked, "probe"), (f"the head starts as a linear probe of the frozen features: {why}",)


def _of_weights(asked: RunConfig, facts: Facts, weights: ModelConfig) -> ModelConfig:
    """The weights say what the model is; the run may say how large its images are, how much is dropped and whether memory is saved;
    data of neither grey nor coloured images, how many channels it takes."""
    size = asked.model.image_size or weights.image_size
    channels = weights.channels if facts.channels in CONVERTED else facts.channels
    asked_for = {name: getattr(asked.model, name) for name in TUNED} | {"image_size": size}
    model = dataclasses.replace(weights, channels=channels, classes=facts.classes, **asked_for)
    if model.is_transformer and min(model.grid) < 2:
        raise ConfigError(f"image {size[0]}×{size[1]} is less than two by two patches of {asked.weights}", "use a larger image size")
    if asked.train.head_start != "probe+mean":
        return model
    if not model.is_transformer or model.pool != "class" or model.distillation_token:
        raise ConfigError("head_start = probe+mean needs a model whose head reads a class token", "set head_start = probe")
    return dataclasses.replace(model, pool="class+mean")


def fit_to_size(model: ModelConfig, size: tuple[int, int]) -> ModelConfig:
    """The model for images of `size`, rounded up to whole patches, which grow when they would be too many."""
    if not model.is_transformer:
        return dataclasses.replace(model, image_size=size)
    patch, stride = model.patch_size, model.stride
    if model.family == "vit" and _patches(size, model.patch_stride) > MOST_PATCHES:
        side = next((p for p in PATCHES if p >= max(patch) and _patches(size, (p, p)) <= MOST_PATCHES), PATCHES[-1])
        patch, stride = (side, side), None
    unit = [step * (STEM_REDUCTION if model.family == "hybrid" else 1) for step in stride or patch]
    rounded = tuple(-(-pixels // step) * step for pixels, step in zip(size, unit, strict=True))
    return dataclasses.replace(model, image_size=rounded, patch_size=patch, stride=stride)


def _grown_patches(asked: ModelConfig, fitted: ModelConfig) -> tuple[str, ...]:
    if not asked.is_transformer or asked.patch_size == fitted.patch_size:
        return ()
    patch, size = asked.patch_size, fitted.image_size
    many = f"patches of {patch[0]}×{patch[1]} would be {_patches(size, asked.patch_stride):,} in an image of {size[0]}×{size[1]}"
    return (f"{many}: they grow to {fitted.patch_size[0]}×{fitted.patch_size[1]}; --image-size sets the size and leaves the patches",)


def _patches(size: tuple[int, int], step: tuple[int, int]) -> int:
    return -(-size[0] // step[0]) * -(-size[1] // step[1])
