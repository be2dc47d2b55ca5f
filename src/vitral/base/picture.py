"""A picture on its way into a model: the pixels the model sees, the original, and where the crop lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from PIL import Image


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels of the original picture; fractions of a pixel are meant."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    def to_original(self, x: float, y: float, size: tuple[int, int]) -> tuple[float, float]:
        """A point of the model's input (x, y, of an input of `size` = (height, width)) in the original."""
        return self.left + x * self.width / size[1], self.top + y * self.height / size[0]


@dataclass(frozen=True)
class Picture:
    """What `open_picture` returns."""

    tensor: torch.Tensor
    """(C, H, W), preprocessed as the model wants it."""
    original: Image.Image
    """As the file shows it: rotated by its EXIF tag, in RGB or grey."""
    box: Box
    """The part of the original that the tensor shows."""
    source: str = ""
    """Path or description."""
    digest: str = ""
    """SHA-256 of the file's bytes."""
