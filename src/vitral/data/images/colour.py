"""Operations that change colours, on whole batches: each reads its columns of uniform numbers and draws nothing itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from vitral.data.images.geometry import apply_where, unit

_GREY = (0.2989, 0.587, 0.114)
"""Share of red, green and blue in the brightness of a pixel (ITU-R 601)."""


@dataclass(frozen=True)
class Colour:
    """One of ten, alike in chance: _brightness, _contrast, saturation (each × 0.1 to 1.9), solarise above a random level,
    posterise to eighths, stretch each channel to its full range, or four times nothing."""

    columns = 2

    def __call__(self, images: torch.Tensor, u: torch.Tensor, _fill: torch.Tensor) -> torch.Tensor:
        images = unit(images)
        choice, level = (u[:, 0] * 10).long(), u[:, 1].view(-1, 1, 1, 1)
        for number, change in enumerate((_brightness, _contrast, _saturation, _solarise, _posterise, _stretch)):
            images = apply_where(choice == number, images, change, level)
        return images


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


def _brightness(images: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    return (images * _factor(level)).clamp(0, 1)


def _contrast(images: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    """Away from, or towards, the mean of all pixels."""
    return _away(images.mean((1, 2, 3), keepdim=True), images, _factor(level))


def _saturation(images: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    """Away from, or towards, each pixel's own grey; nothing happens to grey pictures."""
    return _away(images.mean(1, keepdim=True), images, _factor(level))


def _solarise(images: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    return torch.where(images > level, 1 - images, images)


def _posterise(images: torch.Tensor, _level: torch.Tensor) -> torch.Tensor:
    return (images * 8).floor() / 8


def _stretch(images: torch.Tensor, _level: torch.Tensor) -> torch.Tensor:
    """Each channel to its full range."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)  # (B, C, 1, 1)
    return (images - low) / (high - low + 1e-6)


def _factor(level: torch.Tensor) -> torch.Tensor:
    """0.1 to 1.9."""
    return 0.1 + 1.8 * level


def grey(images: torch.Tensor) -> torch.Tensor:
    """(B, 1, H, W): the brightness of each pixel."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    return _GREY[0] * images[:, 0:1] + _GREY[1] * images[:, 1:2] + _GREY[2] * images[:, 2:3]


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
