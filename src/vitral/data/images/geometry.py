"""Operations that move pixels, on whole batches: shifts, mirrors, crops of random size, affine maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F


def unit(images: torch.Tensor) -> torch.Tensor:
    """Floats in [0, 1]; bytes stay bytes as long as operations only move whole pixels."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images


def gather_pixels(images: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """images[b, :, rows[b], columns[b]] for rows (B, H), columns (B, W)."""
    batch, channels, _, width = images.shape
    # One gather on flat pixels: eight times faster than indexing with four arrays on a CPU, the same on a GPU.
    flat = (rows[:, :, None] * width + columns[:, None, :]).view(batch, 1, -1).expand(batch, channels, -1)
    return images.reshape(batch, channels, -1).gather(2, flat).view(batch, channels, rows.shape[1], columns.shape[1])


def apply_where(mask: torch.Tensor, images: torch.Tensor, change: Callable[..., torch.Tensor], *numbers: torch.Tensor) -> torch.Tensor:
    """`change(images, *numbers)` where mask (B,) is set; `images` may be overwritten, `numbers` have one row per picture.

    A GPU computes all and chooses, because to ask which are set would make the host wait; a CPU computes only those.
    """
    if images.device.type != "cpu":
        return torch.where(mask.view(-1, 1, 1, 1), change(images, *numbers), images)
    chosen = mask.nonzero()[:, 0]
    if len(chosen):
        images[chosen] = change(images[chosen], *(values[chosen] for values in numbers))
    return images


@dataclass(frozen=True)
class Flip:
    """Mirror left and right with chance ½."""

    columns = 1

    def __call__(self, images: torch.Tensor, u: torch.Tensor, _fill: torch.Tensor) -> torch.Tensor:
        mirrored = u[:, 0] < 0.5
        if images.device.type == "cpu" and not torch.compiler.is_compiling():  # fifteen times quicker there than to choose byte by byte
            return torch.stack([image.flip(-1) if chosen else image for image, chosen in zip(images, mirrored.tolist(), strict=True)])
        return torch.where(mirrored.view(-1, 1, 1, 1), images.flip(-1), images)


@dataclass(frozen=True)
class PadCrop:
    """Shift by up to 1/8 of the side in whole pixels (4 of 32), the border filled by reflection; and mirror with chance ½."""

    flip: bool = True
    columns = 3

    def __call__(self, images: torch.Tensor, u: torch.Tensor, _fill: torch.Tensor) -> torch.Tensor:
        height, width = images.shape[-2:]
        rows, columns = torch.arange(height, device=u.device), torch.arange(width, device=u.device)
        mirrored = torch.where((u[:, 2:3] < 0.5) & self.flip, width - 1 - columns, columns)  # (B, W)
        return gather_pixels(
            images, _reflect(rows + _shift(u[:, 0:1], height), height), _reflect(mirrored + _shift(u[:, 1:2], width), width)
        )


@dataclass(frozen=True)
class Translate:
    """Shift by up to `share` of the side, rounded to whole pixels, black behind; small pictures move by up to one pixel."""

    share: float
    columns = 2

    def __call__(self, images: torch.Tensor, u: torch.Tensor, _fill: torch.Tensor) -> torch.Tensor:
        height, width = images.shape[-2:]
        rows = torch.arange(height, device=u.device) + self._offset(u[:, 0:1], height)  # (B, H)
        columns = torch.arange(width, device=u.device) + self._offset(u[:, 1:2], width)  # (B, W)
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
        return gather_pixels(images, rows.clamp(0, height - 1), columns.clamp(0, width - 1)) * inside[:, None]

    def _offset(self, u: torch.Tensor, side: int) -> torch.Tensor:
        return ((u * 2 - 1) * max(1.0, self.share * side)).round().long()


@dataclass(frozen=True)
class ResizedCrop:
    """A crop of a random share of the area and a random ratio of width to height, resized to the whole.

    The law is torchvision's: ten tries, the first that fits is taken; if none does, the largest centred crop of a legal ratio.
    """

    scale: tuple[float, float]
    ratio: tuple[float, float]
    columns = 22
    tries = 10

    def boxes(self, u: torch.Tensor, height: int, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Left, top, width, height (B,) in pixels of a picture of this size; whole numbers."""
        area = height * width * (self.scale[0] + u[:, : self.tries] * (self.scale[1] - self.scale[0]))
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = torch.exp(low + u[:, self.tries : 2 * self.tries] * (high - low))
        wide, tall = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()  # (B, tries)
        fits = (wide >= 1) & (wide <= width) & (tall >= 1) & (tall <= height)
        first = fits.int().argmax(1, keepdim=True)
        any_fits = fits.any(1)
        rest = (min(width, round(height * self.ratio[1])), min(height, round(width / self.ratio[0])))
        wide = torch.where(any_fits, wide.gather(1, first)[:, 0], float(max(1, rest[0])))
        tall = torch.where(any_fits, tall.gather(1, first)[:, 0], float(max(1, rest[1])))
        left = torch.where(any_fits, (u[:, -2] * (width - wide + 1)).floor(), ((width - wide) / 2).floor())
        top = torch.where(any_fits, (u[:, -1] * (height - tall + 1)).floor(), ((height - tall) / 2).floor())
        return left, top, wide, tall

    def box(self, u: np.ndarray, height: int, width: int) -> tuple[int, int, int, int]:
        """The same for one picture by its numbers (columns,), a tenth of the time: twenty operations on tensors of one row cost more
        than to look at the first tries alone. Equal but for the last bit of a logarithm."""
        one = np.float32
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for chance, shape in zip(u[: self.tries], u[self.tries : 2 * self.tries], strict=True):
            area = one(height * width) * (one(self.scale[0]) + chance * one(self.scale[1] - self.scale[0]))
            ratio = np.exp(one(low) + shape * one(high - low))
            wide, tall = int(np.rint(np.sqrt(area * ratio))), int(np.rint(np.sqrt(area / ratio)))
            if 1 <= wide <= width and 1 <= tall <= height:
                return int(u[-2] * one(width - wide + 1)), int(u[-1] * one(height - tall + 1)), wide, tall
        wide = max(1, min(width, round(height * self.ratio[1])))
        tall = max(1, min(height, round(width / self.ratio[0])))
        return (width - wide) // 2, (height - tall) // 2, wide, tall

    def __call__(self, images: torch.Tensor, u: torch.Tensor, _fill: torch.Tensor) -> torch.Tensor:
        height, width = images.shape[-2:]
        left, top, wide, tall = self.boxes(u, height, width)
        zero = torch.zeros_like(left)
        across, down = wide / width, tall / height
        # The centre of the crop in coordinates from -1 to 1, and its half size.
        matrix = torch.stack(
            [
                torch.stack([across, zero, (2 * left + wide) / width - 1], 1),
                torch.stack([zero, down, (2 * top + tall) / height - 1], 1),
            ],
            1,
        )  # (B, 2, 3)
        return _warp(unit(images), matrix, "border")


@dataclass(frozen=True)
class Affine:
    """One of ten, alike in chance: rotate (±30°), shear across or down (±0.3), shift across or down (±20 %), or five times nothing."""

    columns = 2

    def __call__(self, images: torch.Tensor, u: torch.Tensor, _fill: torch.Tensor) -> torch.Tensor:
        choice, amount = (u[:, 0] * 10).long(), u[:, 1] * 2 - 1  # (B,)

        def when(number: int, largest: float) -> torch.Tensor:
            return torch.where(choice == number, amount * largest, 0.0)

        angle = when(0, 0.52)
        cosine, sine = angle.cos(), angle.sin()
        height, width = images.shape[-2:]
        # Shifts are in half sides: the picture runs from -1 to 1, which is another length across than down where it is not square.
        matrix = torch.stack(
            [
                torch.stack([cosine, (when(1, 0.3) - sine) * (height / width), when(3, 0.4)], 1),
                torch.stack([(sine + when(2, 0.3)) * (width / height), cosine, when(4, 0.4)], 1),
            ],
            1,
        )  # (B, 2, 3)
        return apply_where(choice < 5, unit(images), lambda some, maps: _warp(some, maps, "zeros"), matrix)


@dataclass(frozen=True)
class Rotate:
    """Rotated by up to ± `degrees` around its middle; what comes in from outside is the border."""

    degrees: float
    columns = 1

    def __call__(self, images: torch.Tensor, u: torch.Tensor, _fill: torch.Tensor) -> torch.Tensor:
        angle = (u[:, 0] * 2 - 1) * math.radians(self.degrees)
        cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
        height, width = images.shape[-2:]
        # From -1 to 1 is another length across than down where the picture is not square.
        rows = [torch.stack([cosine, -sine * (height / width), zero], 1), torch.stack([sine * (width / height), cosine, zero], 1)]
        return _warp(unit(images), torch.stack(rows, 1), "border")


def _shift(u: torch.Tensor, side: int) -> torch.Tensor:
    """Whole pixels from -pad to pad, alike in chance."""
    pad = min(max(1, side // 8), side - 1)
    return (u * (2 * pad + 1)).long() - pad


def _reflect(positions: torch.Tensor, side: int) -> torch.Tensor:
    """Positions beyond the border mirrored at the outermost pixel."""
    positions = positions.abs()
    return torch.where(positions >= side, 2 * (side - 1) - positions, positions)


def _warp(images: torch.Tensor, matrix: torch.Tensor, padding: str) -> torch.Tensor:
    height, width = images.shape[-2:]
    # affine_grid multiplies matrices for this; two products and two sums per pixel are several times faster.
    down = ((torch.arange(height, device=images.device) * 2 + 1) / height - 1).view(1, -1, 1)
    across = ((torch.arange(width, device=images.device) * 2 + 1) / width - 1).view(1, 1, -1)
    terms = matrix[:, :, :, None, None]  # (B, 2, 3, 1, 1)
    grid = torch.stack([terms[:, i, 0] * across + (terms[:, i, 1] * down + terms[:, i, 2]) for i in (0, 1)], -1)  # (B, H, W, 2)
    if padding == "border" and images.is_mps:  # PyTorch has this padding there since 2.13 (pytorch#125098)
        most = torch.tensor([1 - 1 / width, 1 - 1 / height], device=grid.device)
        grid, padding = grid.clamp(-most, most), "zeros"
    return F.grid_sample(images, grid, mode="bilinear", padding_mode=padding, align_corners=False)
