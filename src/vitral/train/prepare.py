"""Before the first step: data opened, the model fitted to it, built or loaded, and everything the loop needs put together."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.base.errors import ConfigError, DataError
from vitral.base.origin import Origin, known
from vitral.base.progress import say
from vitral.build import build
from vitral.config import ModelConfig, RunConfig
from vitral.data.datasets import Data, open_data
from vitral.data.loader import Loader
from vitral.data.preprocess import Preprocess
from vitral.data.split import Split
from vitral.model.classifier import Classifier
from vitral.presets.models import PATCHES
from vitral.presets.runs import RUNS
from vitral.train.evaluate import compare_names, few
from vitral.train.optim import is_head
from vitral.train.parallel import World

EVALUATION_BATCH = 1000
MOST_PATCHES = 256
"""A model whose picture grows with its data gets larger patches beyond this many."""


@dataclass
class Setup:
    config: RunConfig
    """With the model as it is: fitted to the data, or as the weights have it."""
    data: Data
    model: Classifier
    preprocess: Preprocess
    device: torch.device
    notes: tuple[str, ...] = ()
    """What the user asked for and does not get as it was asked."""

    def training_loader(self, world: World) -> Loader:
        settings = self.config.data
        return Loader(
            self.data.train,
            batch_size=self.config.train.batch_size,
            preprocess=self.preprocess,
            policy=self.data.policy,
            device=self.device,
            seed=self.config.train.seed,
            train=True,
            workers=settings.workers,
            placement=settings.placement,
            rank=world.rank,
            world=world.size,
        )

    def evaluation_loader(self, split: Split, world: World) -> Loader:
        return evaluation_loader(split, self.preprocess, self.device, self.config.train.batch_size, self.config.data.workers, world)


def evaluation_batch(batch_size: int) -> int:
    """Pictures evaluated at a time by a run that learns from `batch_size`: there are no gradients to keep."""
    return max(batch_size, EVALUATION_BATCH // max(1, batch_size) * batch_size)


def evaluation_loader(
    split: Split, preprocess: Preprocess, device: torch.device, batch_size: int, workers: int = 0, world: World | None = None
) -> Loader:
    """Every picture once, in order, not augmented."""
    return Loader(
        split,
        batch_size=evaluation_batch(batch_size),
        preprocess=preprocess,
        device=device,
        workers=workers,
        rank=world.rank if world else 0,
        world=world.size if world else 1,
    )


def prepare(config: RunConfig, device: torch.device, origin: Origin | None = None) -> Setup:
    """Open the data and make the model. `origin`: a resumed run, whose config is settled and whose weights come from its state."""
    torch.manual_seed(config.train.seed)
    if config.weights is not None and origin is None:
        return _from_weights(config, device)
    if origin is not None:
        preprocess = Preprocess.of(origin, config.model)
        data = open_data(config.data, preprocess=preprocess)
        _same_classes(origin.classes.value, data.class_names, config.data.name)
        model = build(config.model)
        model.origin = origin
        return Setup(config, data, model.to(device), preprocess, device)
    replaced = data_replaced(config)
    size = None if replaced and not size_asked(config) else config.model.image_size
    data = open_data(config.data, image_size=size, channels=None if replaced else config.model.channels)
    fitted = fit_to_data(config.model, len(data.class_names), data.channels, data.image_size)
    if fitted.image_size != data.image_size:
        data = open_data(config.data, image_size=fitted.image_size, channels=fitted.channels)
    preprocess = data.preprocess
    model = build(fitted)
    model.origin = preprocess.write_to(dataclasses.replace(model.origin, source=known(f"trained as {config.name}")), data.class_names)
    return Setup(dataclasses.replace(config, model=fitted), data, model.to(device), preprocess, device, _grown_patches(config, fitted))


def _same_classes(before: tuple[str, ...], now: tuple[str, ...], data: str) -> None:
    """A resumed model answers with the numbers of the classes that it began with."""
    if before == now:
        return
    gone, new = [name for name in before if name not in now], [name for name in now if name not in before]
    changes = [f"{word} {few(names)}" for word, names in (("without", gone), ("with", new)) if names]
    raise DataError(
        f"the classes of {data} are others than when the run began ({', '.join(changes) or 'in another order'})",
        "name the class folders as they were, or start a new run with --out",
    )


def _from_weights(config: RunConfig, device: torch.device) -> Setup:
    """Fine-tuning: the weights say what the model is and how its pictures are normalised; the run says how large and how many classes."""
    from vitral.weights.load import load
    from vitral.weights.resize import adapt

    assert config.weights is not None
    source = load(config.weights)
    size = config.model.image_size
    if not fits(source.config, size):
        if size_asked(config):
            dataclasses.replace(source.config, image_size=size)  # says which sizes can be, where this one cannot
            raise ConfigError(f"image {size[0]}×{size[1]} is less than two by two patches of {config.weights}", "use a larger image size")
        size = source.config.image_size
    fitted = dataclasses.replace(source.config, image_size=size)
    preprocess = Preprocess.of(source.origin, fitted)
    changes = {name: value for name in ("mean", "std", "resize") if (value := getattr(config.data, name)) is not None}
    preprocess = dataclasses.replace(preprocess, **changes)
    data = open_data(config.data, preprocess=preprocess)
    model = adapt(source, image_size=size, classes=len(data.class_names))
    settled = dataclasses.replace(model.config, dropout=config.model.dropout, drop_path=config.model.drop_path)
    if config.train.head_start == "probe+mean":
        settled = _reading_both(settled)
    if settled != model.config:
        values = model.state_dict()
        if settled.pool != model.config.pool:
            values = {name: value for name, value in values.items() if not is_head(name)}  # of another width; the probe makes it anew
        origin, model = model.origin, build(settled)
        model.load_state_dict(model.state_dict() | values)
        model.origin = origin
    model.origin = preprocess.write_to(model.origin, data.class_names)
    return Setup(dataclasses.replace(config, model=settled), data, model.to(device), preprocess, device)


def _reading_both(config: ModelConfig) -> ModelConfig:
    """The same model with a head that reads the class token and the mean of the patches."""
    if config.family not in ("vit", "hybrid") or config.pool != "class" or config.distillation_token:
        raise ConfigError("head_start = probe+mean needs a model whose head reads a class token", "set head_start = probe")
    return dataclasses.replace(config, pool="class+mean")


def data_replaced(config: RunConfig) -> bool:
    """Whether a preset's data was exchanged: channels follow the new data then, and so does the size that nobody asked for."""
    preset = RUNS.get(config.preset)
    return preset is not None and preset.data.name != config.data.name


def size_asked(config: RunConfig) -> bool:
    """Whether somebody wants this picture size: by word, or because it is another than the preset's."""
    preset = RUNS.get(config.preset)
    return config.fixed_size or (preset is not None and preset.model.image_size != config.model.image_size)


def _grown_patches(config: RunConfig, fitted: ModelConfig) -> tuple[str, ...]:
    """A note, where patches that somebody asked for would have been too many."""
    preset, patch, size = RUNS.get(config.preset), config.model.patch_size, fitted.image_size
    if preset is None or patch in (preset.model.patch_size, fitted.patch_size):
        return ()
    many = f"patches of {patch[0]}×{patch[1]} would be {_patches(size, config.model.step):,} in a picture of {size[0]}×{size[1]}"
    return (f"{many}: they grow to {fitted.patch_size[0]}×{fitted.patch_size[1]}; --image-size sets the size and leaves the patches",)


def other_model(asked: RunConfig, stored: ModelConfig) -> str | None:
    """The field in which `stored`, fitted to its data or taken from weights, cannot have come from `asked`; None: it can."""
    model, size = asked.model, asked.model.image_size
    if asked.weights is not None:  # they say what the model is; the run may say how large, and how much is dropped
        if size != stored.image_size and (size_asked(asked) or fits(stored, size)):
            return "image_size"
        return next((name for name in ("dropout", "drop_path") if getattr(model, name) != getattr(stored, name)), None)
    free = {"classes"}
    if data_replaced(asked):
        free.add("channels")
        if size == stored.image_size or not size_asked(asked):
            free.add("image_size")
            if (stored.patch_size, stored.stride) == _enough(model, stored.image_size):
                free |= {"patch_size", "stride"}
    names = (field.name for field in dataclasses.fields(ModelConfig) if field.name not in free)
    return next((name for name in names if getattr(model, name) != getattr(stored, name)), None)


def fits(config: ModelConfig, size: tuple[int, int]) -> bool:
    """Whether weights of this model can take pictures of `size`: a whole grid of at least two by two patches."""
    if config.family not in ("vit", "hybrid"):
        return True
    try:
        grid = dataclasses.replace(config, image_size=size).grid
    except ConfigError:
        return False
    return min(grid) >= 2


def fit_to_data(config: ModelConfig, classes: int, channels: int, size: tuple[int, int]) -> ModelConfig:
    """Classes, channels and size of the data; the size is rounded up to whole patches, which grow when they would be too many."""
    if config.family not in ("vit", "hybrid"):
        return dataclasses.replace(config, classes=classes, channels=channels, image_size=size)
    if config.image_size == size:
        return dataclasses.replace(config, classes=classes, channels=channels)
    patch, stride = _enough(config, size)
    step = stride or patch
    unit = tuple(s * (1 if config.family == "vit" else 4) for s in step)
    rounded = (-(-size[0] // unit[0]) * unit[0], -(-size[1] // unit[1]) * unit[1])
    return dataclasses.replace(config, classes=classes, channels=channels, image_size=rounded, patch_size=patch, stride=stride)


def _enough(config: ModelConfig, size: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """(patch, stride) of the model in a picture of `size`: larger than its own when those would be too many."""
    if config.family != "vit" or _patches(size, config.step) <= MOST_PATCHES:
        return config.patch_size, config.stride
    side = next((p for p in PATCHES if p >= max(config.patch_size) and _patches(size, (p, p)) <= MOST_PATCHES), PATCHES[-1])
    return (side, side), None


def _patches(size: tuple[int, int], step: tuple[int, int]) -> int:
    return -(-size[0] // step[0]) * -(-size[1] // step[1])


# ---- teacher -------------------------------------------------------------------------------------------------------------------


class Teacher(nn.Module):
    """A model to learn from, shown the student's pictures as it knows them: its own normalisation and size."""

    def __init__(self, model: Classifier, student: Preprocess) -> None:
        super().__init__()
        own = Preprocess.of(model)
        self.model, self.size = model, own.image_size
        if own.channels != student.channels:
            raise ConfigError(f"the teacher wants {own.channels} channels, the student {student.channels}", "choose a teacher with as many")
        scale = torch.tensor(student.std) / torch.tensor(own.std)
        shift = (torch.tensor(student.mean) - torch.tensor(own.mean)) / torch.tensor(own.std)
        self.register_buffer("scale", scale.view(1, -1, 1, 1), persistent=False)
        self.register_buffer("shift", shift.view(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        images = images * self.scale + self.shift  # type: ignore[operator]
        if images.shape[-2:] != self.size:
            images = F.interpolate(images, self.size, mode="bilinear", antialias=True)
        return self.model(images)


def load_teacher(name: str, data: Data, student: Preprocess, device: torch.device, quiet: bool = False) -> Teacher:
    from vitral.weights.load import load

    model = load(name)
    if model.config.classes != len(data.class_names):
        raise ConfigError(
            f"teacher {name} has {model.config.classes} classes, the data {len(data.class_names)}",
            "train or fine-tune the teacher on the same data first",
        )
    note = compare_names("the teacher", model.origin.classes.value, data.name, data.class_names)
    if note and not quiet:
        say(f"note: {note}")
    return Teacher(model, student).to(device)
