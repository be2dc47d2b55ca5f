"""The operation that changes colours, on whole batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vitral.data.images.geometry import apply_where, unit


@dataclass(frozen=True)
class Colour:
    """One of ten, alike in chance: brightness, contrast, saturation (each × 0.1 to 1.9), solarise above a random level,
    posterise to eighths, stretch each channel to its full range, or four times nothing."""

    columns = 2

    def __call__(self, images: torch.Tensor, u: torch.Tensor, _fill: torch.Tensor) -> torch.Tensor:
        images = unit(images)
        choice, level = (u[:, 0] * 10).long(), u[:, 1].view(-1, 1, 1, 1)
        for number, change in enumerate((brightness, contrast, saturation, solarise, posterise, stretch)):
            images = apply_where(choice == number, images, change, level)
        return images


def brightness(images: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    return (images * _factor(level)).clamp(0, 1)


def contrast(images: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    """Away from, or towards, the mean of all pixels."""
    return _from(images.mean((1, 2, 3), keepdim=True), images, level)


def saturation(images: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    """Away from, or towards, each pixel's own grey; nothing happens to grey pictures."""
    return _from(images.mean(1, keepdim=True), images, level)


def solarise(images: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    return torch.where(images > level, 1 - images, images)


def posterise(images: torch.Tensor, _level: torch.Tensor) -> torch.Tensor:
    return (images * 8).floor() / 8


def stretch(images: torch.Tensor, _level: torch.Tensor) -> torch.Tensor:
    """Each channel to its full range."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)  # (B, C, 1, 1)
    return (images - low) / (high - low + 1e-6)


def _from(anchor: torch.Tensor, images: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    return (anchor + (images - anchor) * _factor(level)).clamp(0, 1)


def _factor(level: torch.Tensor) -> torch.Tensor:
    """0.1 to 1.9."""
    return 0.1 + 1.8 * level
