"""Views of a picture for learning without labels: crops at several scales, mirrored, recoloured, greyed, blurred, solarised.

Like an augmentation policy, a pure function of pixels and uniform numbers: each operation reads its columns of `u`, nothing is drawn here,
and the whole compiles to one graph. B pictures, V views of each, C channels, H × W pixels.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from vitral.config import PretrainConfig
from vitral.data.images.geometry import Flip, ResizedCrop, Rotate, apply_where, unit
from vitral.data.images.preprocess import Preprocess

GREY = (0.2989, 0.587, 0.114)
"""Share of red, green and blue in the brightness of a pixel (ITU-R 601)."""
RATIO = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class Jitter:
    """With a chance, brightness, contrast and saturation times 1 ± `strength`, then the hue turned by up to ± `hue` of the circle."""

    chance: float = 0.8
    strength: float = 0.4
    hue: float = 0.1
    columns = 5

    def __call__(self, images: torch.Tensor, u: torch.Tensor, _fill: torch.Tensor) -> torch.Tensor:
        return apply_where(u[:, 0] < self.chance, unit(images), self._jitter, u[:, 1:] * 2 - 1)

    def _jitter(self, images: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        by = by.view(-1, 4, 1, 1, 1)
        images = (images * (1 + self.strength * by[:, 0])).clamp(0, 1)
        images = _away(grey(images).mean((1, 2, 3), keepdim=True), images, 1 + self.strength * by[:, 1])
        if images.shape[1] != 3:
            return images
        images = _away(grey(images), images, 1 + self.strength * by[:, 2])
        return turn_hue(images, self.hue * by[:, 3, 0])


@dataclass(frozen=True)
class Grey:
    """With a chance, colours are left out."""

    chance: float = 0.2
    columns = 1

    def __call__(self, images: torch.Tensor, u: torch.Tensor, _fill: torch.Tensor) -> torch.Tensor:
        return apply_where(u[:, 0] < self.chance, unit(images), lambda some: grey(some).expand_as(some))


@dataclass(frozen=True)
class Blur:
    """With a chance, a Gaussian of 0.1 to `widest` pixels; the border is reflected."""

    chance: float
    widest: float
    columns = 2

    def __call__(self, images: torch.Tensor, u: torch.Tensor, _fill: torch.Tensor) -> torch.Tensor:
        sigma = 0.1 + (self.widest - 0.1) * u[:, 1]
        return apply_where(u[:, 0] < self.chance, unit(images), lambda some, width: blur(some, width, self.reach), sigma)

    @property
    def reach(self) -> int:
        """Pixels to each side that count."""
        return max(1, math.ceil(2 * self.widest))


@dataclass(frozen=True)
class Solarise:
    """With a chance, bright pixels are turned into their negative."""

    chance: float = 0.1
    columns = 1

    def __call__(self, images: torch.Tensor, u: torch.Tensor, _fill: torch.Tensor) -> torch.Tensor:
        return apply_where(u[:, 0] < self.chance, unit(images), lambda some: torch.where(some >= 0.5, 1 - some, some))


# ---- what they are made of -----------------------------------------------------------------------------------------------------


def grey(images: torch.Tensor) -> torch.Tensor:
    """(B, 1, H, W): the brightness of each pixel."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    return GREY[0] * images[:, 0:1] + GREY[1] * images[:, 1:2] + GREY[2] * images[:, 2:3]


def turn_hue(images: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """RGB images with the hue of HSV moved by `turn` (B, 1, 1) of the circle; value and saturation stay."""
    red, green, blue = images.unbind(1)  # (B, H, W)
    value, low = images.amax(1), images.amin(1)
    range_ = value - low
    safe = torch.where(range_ > 0, range_, 1.0)
    sixths = torch.where(
        value == red, (green - blue) / safe, torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe)
    )
    sixths = torch.where(range_ > 0, sixths, 0.0) + 6 * turn
    # Channel n of the colour of hue h: value − range · max(0, min(k, 4 − k, 1)) with k = (n + 6 h) mod 6.
    shifted = torch.stack([sixths + 5, sixths + 3, sixths + 1], 1) % 6
    return value[:, None] - range_[:, None] * torch.minimum(shifted, 4 - shifted).clamp(0, 1)


def blur(images: torch.Tensor, sigma: torch.Tensor, reach: int) -> torch.Tensor:
    """A Gaussian of sigma (B,) pixels, cut off at `reach`: one shifted sum per tap, which a compiler makes one kernel.

    A grouped convolution with a kernel per image would do one image at a time on a GPU.
    """
    reach = min(reach, images.shape[-1] - 1, images.shape[-2] - 1)
    taps = torch.arange(-reach, reach + 1, device=images.device)
    weights = torch.exp(-0.5 * (taps / sigma[:, None]) ** 2)  # (B, 2 reach + 1)
    weights = (weights / weights.sum(1, keepdim=True)).view(-1, len(taps), 1, 1, 1)
    for size, padding in ((images.shape[-1], (reach, reach, 0, 0)), (images.shape[-2], (0, 0, reach, reach))):
        padded, dimension = F.pad(images, padding, mode="reflect"), -1 if padding[0] else -2
        images = sum(weights[:, tap] * padded.narrow(dimension, tap, size) for tap in range(len(taps)))  # type: ignore[assignment]
    return images


def _away(anchor: torch.Tensor, images: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Away from, or towards, the anchor."""
    return (anchor + (images - anchor) * factor).clamp(0, 1)


# ---- all views of a batch ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Views:
    """Which views are made: (number, operations) of each kind, the global ones first."""

    kinds: tuple[tuple[int, tuple[Any, ...]], ...]

    @property
    def count(self) -> int:
        return sum(number for number, _ in self.kinds)

    @property
    def columns(self) -> int:
        """Uniform numbers per picture."""
        return sum(number * sum(operation.columns for operation in operations) for number, operations in self.kinds)


def views_of(config: PretrainConfig, *, flip: bool, channels: int, side: int) -> Views:
    """The views that `config` asks for, made for such pictures."""
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
    return Views(tuple((number, (ResizedCrop(scale, RATIO), *around, *colours)) for number, scale in kinds if number))


class ViewMaker:
    """Views made ready for one device: uint8 (B, C, H, W) and uniform numbers in, normalised floats (B, V, C, H, W) out."""

    def __init__(self, views: Views, preprocess: Preprocess, device: torch.device) -> None:
        self.views, self.columns = views, views.columns
        self.mean = torch.tensor(preprocess.mean, device=device).view(1, -1, 1, 1)
        self.std = torch.tensor(preprocess.std, device=device).view(1, -1, 1, 1)
        self.compile = device.type == "cuda"

    @torch.no_grad()
    def __call__(self, images: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        run = compiled(self.views, tuple(images.shape)) if self.compile else make_views
        return run(self.views.kinds, images, u, self.mean, self.std)


@functools.cache
def compiled(views: Views, shape: tuple[int, ...], backend: str = "inductor") -> Callable[..., torch.Tensor]:
    """One graph for these views and this shape, with a code object of its own (see `augment.compiled`)."""
    own = types.FunctionType(make_views.__code__.replace(), globals(), f"views_{views.count}_of_{'x'.join(map(str, shape))}")
    return torch.compile(own, fullgraph=True, dynamic=False, backend=backend)


def make_views(
    kinds: tuple[tuple[int, tuple[Any, ...]], ...], images: torch.Tensor, u: torch.Tensor, mean: torch.Tensor, std: torch.Tensor
) -> torch.Tensor:
    made, start, batch = [], 0, len(images)
    for number, operations in kinds:
        width = sum(operation.columns for operation in operations)
        own = u[:, start : start + number * width].reshape(batch * number, width)
        start += number * width
        repeated = images[:, None].expand(-1, number, -1, -1, -1).flatten(0, 1)  # (B · number, C, H, W)
        column = 0
        for operation in operations:
            repeated = operation(repeated, own[:, column : column + operation.columns], mean)
            column += operation.columns
        made.append(((unit(repeated) - mean) / std).unflatten(0, (batch, number)))
    return torch.cat(made, dim=1)
