"""Named augmentation policies, and views for learning without labels: a pure function of pixels and uniform numbers, on batches.

A set that lives on the device and a stream whose workers only decode both run it. An operation draws nothing itself; it reads its columns
of `u` (B, columns), so a batch is decided by its address alone and the whole function is one graph, recorded or compiled. A policy is
one view of one kind. B images, V views of each, C channels, H × W pixels.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from vitral.base.errors import ConfigError, one_of
from vitral.base.lazy import needed
from vitral.config import PretrainConfig
from vitral.data.images.colour import Blur, Colour, Grey, Jitter, Solarise
from vitral.data.images.geometry import Affine, Flip, PadCrop, ResizedCrop, Rotate, Translate, unit
from vitral.data.images.preprocess import Preprocess
from vitral.kernels.graphs import Recorded

SMALL = 8 << 20
"""Numbers of a batch (2,730 pictures of 32 pixels, 55 of 224) up to which a GPU waits for launches, not for memory: 23 s of compiling
gain 0.14 ms a batch of 512 small pictures (docs/LOG.md), so it is recorded as it is."""


_RATIO = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class Cutout:
    """With chance ½, a square of about 2/7 of the side (9 pixels of 32) becomes the mean colour."""

    columns = 3

    def __call__(self, images: torch.Tensor, u: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
        height, width = images.shape[-2:]
        row, column = (u[:, 0] * height).long(), (u[:, 1] * width).long()  # (B,)
        rows, columns = torch.arange(height, device=u.device), torch.arange(width, device=u.device)
        down = (rows - row[:, None]).abs() <= max(1, round(height / 8))  # (B, H)
        across = ((columns - column[:, None]).abs() <= max(1, round(width / 8))) & (u[:, 2:3] < 0.5)  # (B, W)
        return torch.where((down[:, :, None] & across[:, None, :])[:, None], fill, unit(images))


@dataclass(frozen=True)
class Policy:
    """What happens to a training picture."""

    name: str
    operations: tuple[Any, ...] = ()
    """Applied in order to the whole batch; each has `columns` and is called with (images, u, fill)."""
    crop: ResizedCrop | None = None
    """A crop of random size and shape: of the original where files are decoded, of the stored pixels on the device."""
    per_image: str | None = None
    """A policy of torchvision's, run picture by picture before the operations."""
    mixup: float = 0.0
    """Share of batches mixed pixel-wise."""
    cutmix: float = 0.0
    """Share of batches mixed by rectangles."""

    def on_batches(self, crop: bool) -> Views:
        """What is done to a batch; `crop`: the random crop too."""
        return Views(((1, (self.crop, *self.operations) if crop and self.crop else self.operations),))


@dataclass(frozen=True)
class Views:
    """Which views are made: (number, operations) of each kind, the global ones first."""

    kinds: tuple[tuple[int, tuple[Any, ...]], ...]

    @property
    def count(self) -> int:
        return sum(number for number, _ in self.kinds)

    @property
    def columns(self) -> int:
        """Uniform numbers per image."""
        return sum(number * sum(operation.columns for operation in operations) for number, operations in self.kinds)


def policy(name: str, *, flip: bool = True, photographs: bool = False, mixup: float | None = None, cutmix: float | None = None) -> Policy:
    """The policy of this name for such pictures; `mixup` and `cutmix` replace its own shares."""
    if name not in POLICIES:
        raise one_of("augmentation policy", name, POLICIES)
    out = _policies(flip, photographs)[name]
    mixed = dataclasses.replace(out, mixup=out.mixup if mixup is None else mixup, cutmix=out.cutmix if cutmix is None else cutmix)
    if min(mixed.mixup, mixed.cutmix) < 0 or mixed.mixup + mixed.cutmix > 1:
        raise ConfigError(f"mixup {mixed.mixup} + cutmix {mixed.cutmix} is more than all batches", "use shares that add up to at most 1")
    return mixed


def views_of(config: PretrainConfig, *, flip: bool, channels: int, side: int) -> Views:
    """The views that `config` asks for, made for such images."""
    colours: tuple[Any, ...] = ()
    if config.colour:
        colours = (Jitter(strength=0.4 * config.colour, hue=0.1 * config.colour),)
        colours += (Grey(),) * (channels == 3)
    if config.blur:
        colours += (Blur(config.blur, widest=2.0 * min(1.0, side / 224) if side >= 64 else 1.0),)
    if config.solarise:
        colours += (Solarise(config.solarise),)
    around = ((Flip(),) if flip else ()) + ((Rotate(config.turn),) if config.turn else ())
    kinds = [(config.global_views, config.global_scale), (config.local_views, config.local_scale)]
    return Views(tuple((number, (ResizedCrop(scale, _RATIO), *around, *colours)) for number, scale in kinds if number))


class Augment:
    """A policy or views made ready for one device.

    uint8 (B, C, H, W) and uniform numbers in, normalised floats out: (B, C, H, W) of a policy, (B, V, C, H, W) of views.
    """

    def __init__(self, chosen: Policy | Views, preprocess: Preprocess, device: torch.device, crop: bool = False) -> None:
        self.single = isinstance(chosen, Policy)
        self.views = chosen.on_batches(crop) if isinstance(chosen, Policy) else chosen
        self.columns = self.views.columns
        self.mean = torch.tensor(preprocess.mean, device=device).view(1, -1, 1, 1)
        self.std = torch.tensor(preprocess.std, device=device).view(1, -1, 1, 1)
        # Plain normalisation is one kernel or two, and its last batch has another size.
        self.fused = device.type == "cuda" and any(operations for _, operations in self.views.kinds)
        self._recorded: dict[torch.Size, Recorded] = {}

    @torch.no_grad()
    def __call__(self, images: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        made = self._made(images, u)
        return made[:, 0] if self.single else made

    def _made(self, images: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        if not self.fused:
            return self._run(images, u)
        if not self.single or images.numel() > SMALL:
            return compiled(self.views, tuple(images.shape))(self.views.kinds, images, u, self.mean, self.std)
        if images.shape not in self._recorded:
            self._recorded[images.shape] = Recorded(self._run, images, u)
        return self._recorded[images.shape](images, u)

    def _run(self, images: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return _make_views(self.views.kinds, images, u, self.mean, self.std)


@functools.cache
def compiled(views: Views, shape: tuple[int, ...], backend: str = "inductor") -> Callable[..., torch.Tensor]:
    """One graph for these views and this shape.

    Each has a code object of its own: the compiler counts recompilations per code object and gives up after a few, but one
    process may well train on many data sets.
    """
    name = f"views_{views.count}_of_{'x'.join(map(str, shape))}"  # for the compiler's log and profiles
    own = types.FunctionType(_make_views.__code__.replace(), globals(), name)
    return torch.compile(own, fullgraph=True, dynamic=False, backend=backend)


def _make_views(
    kinds: tuple[tuple[int, tuple[Any, ...]], ...], images: torch.Tensor, u: torch.Tensor, mean: torch.Tensor, std: torch.Tensor
) -> torch.Tensor:
    made, start, batch = [], 0, len(images)
    for number, operations in kinds:
        width = sum(operation.columns for operation in operations)
        own = u[:, start : start + number * width].reshape(batch * number, width)
        start += number * width
        repeated = images if number == 1 else images[:, None].expand(-1, number, -1, -1, -1).flatten(0, 1)  # (B · number, C, H, W)
        column = 0
        for operation in operations:
            repeated = operation(repeated, own[:, column : column + operation.columns], mean)
            column += operation.columns
        values = unit(repeated)
        # A batch of its own is not copied once more.
        made.append(((values - mean if values is images else values.sub_(mean)).div_(std)).unflatten(0, (batch, number)))
    return made[0] if len(made) == 1 else torch.cat(made, dim=1)


def image_transform(name: str) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """torchvision's policy as a function of one uint8 picture (C, H, W) and the key of its random numbers."""
    v2 = needed("torchvision.transforms.v2", f"--augment {name}")

    transform = {
        "randaugment": v2.RandAugment,
        "trivialaugment": v2.TrivialAugmentWide,
        "autoaugment": v2.AutoAugment,
    }[name]()

    def apply(image: torch.Tensor, key: int) -> torch.Tensor:
        # torchvision draws from torch's global CPU generator: lend it one of our own for this picture.
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(key)
            if image.shape[0] not in (1, 3):
                raise ConfigError(f"{name} is for grey or RGB pictures, not {image.shape[0]} channels", "use standard")
            return transform(image)

    return apply


def _policies(flip: bool, photographs: bool) -> dict[str, Policy]:
    """All of them by name. `standard` shifts small images by up to 1/8 of the side and crops photographs at random."""
    mirror = (Flip(),) if flip else ()
    operations, crop = (mirror, ResizedCrop((0.08, 1.0), _RATIO)) if photographs else ((PadCrop(flip),), None)
    return {
        "none": Policy("none"),
        "light": Policy("light", (Translate(0.05),)),
        "standard": Policy("standard", operations, crop),
        "resized-crop": Policy("resized-crop", mirror, ResizedCrop((0.8, 1.0), (0.9, 1.1))),
        "strong": Policy("strong", (*operations, Affine(), Colour(), Cutout()), crop, mixup=0.2, cutmix=0.5),
        **{name: Policy(name, operations, crop, per_image=name) for name in ("randaugment", "trivialaugment", "autoaugment")},
    }


POLICIES = tuple(_policies(flip=True, photographs=True))
