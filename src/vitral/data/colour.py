"""The step that changes colours, on whole batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vitral.data.geometry import unit


@dataclass(frozen=True)
class Colour:
    """One of ten, alike in chance: brightness, contrast, saturation (each × 0.1 to 1.9), solarise above a random level,
    posterise to 8 levels, stretch each channel to its full range, or four times nothing."""

    columns = 2

    def __call__(self, images: torch.Tensor, u: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
        images = unit(images)
        choice = (u[:, 0] * 10).long().view(-1, 1, 1, 1)
        level = u[:, 1].view(-1, 1, 1, 1)
        factor = 0.1 + 1.8 * level
        grey = images.mean(1, keepdim=True)  # (B, 1, H, W)
        low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)  # (B, C, 1, 1)
        # Brightness, contrast, saturation and the stretch are all: anchor + (picture - anchor) × factor, then an offset.
        anchor = torch.where(choice == 1, grey.mean((2, 3), keepdim=True), torch.where(choice == 2, grey, 0.0))
        out = torch.where(choice <= 2, anchor + (images - anchor) * factor, images)
        out = torch.where((choice == 3) & (images > level), 1 - images, out)
        out = torch.where(choice == 4, (images * 8).floor() / 8, out)
        out = torch.where(choice == 5, (images - low) / (high - low + 1e-6), out)
        return out.clamp(0, 1)
