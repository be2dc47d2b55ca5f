"""The one road from a picture to a model's input, used by training, prediction, looking and the web alike.

Resizing is Pillow's antialiased filter. `short`: the picture is resized until it just covers the image size / crop, then
the centre is cut out; `squash`: straight to the image size. Either way the part of the original that is seen is kept as a Box.
Grey → RGB repeats the channel; RGB → grey is ITU-R 601 luma (0.299 R + 0.587 G + 0.114 B).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from vitral.base.errors import ConfigError, DataError, need_model, one_of
from vitral.base.files import sha256_bytes, sha256_file
from vitral.base.numbers import to_numpy
from vitral.base.origin import Origin, fact, per_channel
from vitral.base.picture import Box, Picture
from vitral.config import ModelConfig
from vitral.data.images.decode import Decoded, decode

_INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
_LARGEST_RESIZED = 32_000_000
"""Pixels of the picture between resizing and cropping; longer strips are cut before they are resized."""


class Resizing(NamedTuple):
    """Resize to width × height, then cut the model's input out at (left, top)."""

    width: int
    height: int
    left: int
    top: int


@dataclass(frozen=True)
class Preprocess:
    """What a model wants its pictures to be."""

    image_size: tuple[int, int]
    """Height, width."""
    channels: int = 3
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    resize: str = "short"
    crop: float = 1.0
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        if self.interpolation not in _INTERPOLATIONS:
            raise one_of("interpolation", self.interpolation, _INTERPOLATIONS)
        if self.resize not in ("short", "squash"):
            raise one_of("resize", self.resize, ("short", "squash"))
        if not 0 < self.crop <= 1:
            raise ConfigError(f"crop {self.crop} is not a share", "use a number above 0 and up to 1, such as 0.9")
        if min(self.image_size) < 1:
            raise ConfigError(f"image size {self.image_size}", "both sides must be at least 1 pixel")
        for name in ("mean", "std"):
            values = getattr(self, name)
            if len(values) not in (1, 3, self.channels):
                raise ConfigError(f"{name} has {len(values)} values for {self.channels} channels", "give one value per channel")
            object.__setattr__(self, name, per_channel(values, self.channels))
        if not all(map(math.isfinite, (*self.mean, *self.std))):
            raise ConfigError(f"mean {self.mean}, std {self.std}", "use finite numbers")
        if min(self.std) <= 0:
            raise ConfigError(f"std {self.std} is not positive", "use the standard deviation of pixels in [0, 1], such as 0.5")

    @classmethod
    def of(cls, model: Any, config: ModelConfig | None = None) -> Preprocess:
        """From a model (its `config` and `origin`), or from an Origin and a ModelConfig."""
        if config is None:
            need_model(model)
        origin: Origin = getattr(model, "origin", model)
        sizes: ModelConfig = config or model.config
        return cls(
            image_size=sizes.image_size,
            channels=sizes.channels,
            mean=origin.mean.value,
            std=origin.std.value,
            resize=origin.resize.value,
            crop=origin.crop.value,
            interpolation=origin.interpolation.value,
        )

    def write_to(self, origin: Origin, class_names: Sequence[str] = ()) -> Origin:
        """`origin` with these settings as known facts: what a model trained with them must remember."""
        facts = {name: fact(getattr(self, name), "as trained") for name in ("mean", "std", "resize", "crop", "interpolation")}
        if class_names:
            facts["classes"] = fact(tuple(class_names), "as trained")
        return dataclasses.replace(origin, **facts)

    def __call__(self, source: Any, name: str = "") -> Picture:
        """A path, bytes, PIL image or uint8 array (H, W[, C]) as a Picture."""
        return open_picture(source, self, name)

    def batch(self, pictures: Iterable[Any]) -> torch.Tensor:
        """Pictures, or anything that becomes one, stacked: (B, C, H, W)."""
        return torch.stack([(item if isinstance(item, Picture) else self(item)).tensor for item in pictures])

    def pixels(self, image: Decoded, box: Box | None = None) -> np.ndarray:
        """(C, H, W) uint8 as the model will see them, before normalisation; `box`: this part, not the usual crop."""
        target = self.image_size[1], self.image_size[0]
        converted = _with_channels(image, self.channels)
        if box is not None:
            return _planes(resized(converted, target, self.interpolation, (box.left, box.top, box.right, box.bottom)))
        width, height = size_of(image)
        if (width, height) == target and (self.resize == "squash" or self.crop == 1):
            return _planes(converted)
        if self.resize == "squash":
            return _planes(resized(converted, target, self.interpolation))
        wide, tall, left, top = self.resizing(width, height)
        if wide * tall > _LARGEST_RESIZED:
            return self.pixels(image, self.box(width, height))
        whole = _planes(resized(converted, (wide, tall), self.interpolation))
        return np.ascontiguousarray(whole[:, top : top + target[1], left : left + target[0]])

    def cut(self, image: Decoded, box: Box) -> torch.Tensor:
        """A random crop (whole pixels) as (C, H, W) uint8: cut out, then resized by PyTorch's antialiased kernel in a quarter of Pillow's
        time. The two differ by 0.02 of 255 on average; what is evaluated takes Pillow's road (`pixels`), as published weights do."""
        if self.interpolation not in ("bilinear", "bicubic"):
            return torch.from_numpy(self.pixels(image, box))
        left, top, right, bottom = map(round, (box.left, box.top, box.right, box.bottom))
        part = image.crop((left, top, right, bottom)) if isinstance(image, Image.Image) else image[top:bottom, left:right]
        values = np.array(_with_channels(part, self.channels))  # (H, W[, C]), writable
        planes = torch.from_numpy(values if values.ndim == 3 else values[:, :, None]).permute(2, 0, 1)
        small = F.interpolate(planes[None], self.image_size, mode=self.interpolation, antialias=True, align_corners=False)
        return small[0].contiguous()

    def covered(self) -> tuple[int, int]:
        """Height and width after the short-side resize, before the centre crop."""
        return int(self.image_size[0] / self.crop + 1e-9), int(self.image_size[1] / self.crop + 1e-9)

    def resizing(self, width: int, height: int) -> Resizing:
        """How an image of this size is resized and where it is cut."""
        if self.resize == "squash":
            return Resizing(self.image_size[1], self.image_size[0], 0, 0)
        tall, wide = self.covered()
        if tall * width >= wide * height:  # the height decides
            wide = max(wide, tall * width // height)
        else:
            tall = max(tall, wide * height // width)
        return Resizing(wide, tall, round((wide - self.image_size[1]) / 2), round((tall - self.image_size[0]) / 2))

    def box(self, width: int, height: int) -> Box:
        """The part that is seen of an original of this size, in its pixels."""
        wide, tall, left, top = self.resizing(width, height)
        across, down = width / wide, height / tall
        return Box(left * across, top * down, (left + self.image_size[1]) * across, (top + self.image_size[0]) * down)

    def tensor(self, image: Decoded) -> torch.Tensor:
        """(C, H, W) float, what the model takes."""
        return self.normalise(torch.from_numpy(self.pixels(image)))

    def normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 (…, C, H, W) → float, mean and std applied."""
        mean = torch.tensor(self.mean, device=pixels.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=pixels.device).view(-1, 1, 1)
        return (pixels.float() / 255 - mean) / std

    def as_image(self, tensor: torch.Tensor) -> Image.Image:
        """What a normalised tensor (C, H, W) shows: the way back of `normalise`."""
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        pixels = ((tensor.detach().float().cpu() * std + mean) * 255).round().clamp(0, 255).byte()
        return viewable(to_numpy(pixels.permute(1, 2, 0)))


@dataclass(frozen=True, repr=False)
class Transform:
    """PIL image → tensor (C, H, W), for one's own Dataset: it can be pickled, so a DataLoader's workers may have it."""

    preprocess: Preprocess

    def __call__(self, image: Any) -> torch.Tensor:
        return self.preprocess.tensor(decode(image))

    def __repr__(self) -> str:
        wants = self.preprocess
        size, covered = ("×".join(map(str, sides)) for sides in (wants.image_size, wants.covered()))
        how = f"squashed to {size}" if wants.resize == "squash" else f"resized to cover {covered}, centre {size} cut out"
        return (
            f"Transform(PIL image → ({wants.channels}, {size}) float32: {how}, {wants.interpolation}; mean {wants.mean}, std {wants.std})"
        )


def transform(model: Any) -> Transform:
    """A callable that makes a PIL image the tensor that `model` wants, as `open_picture` does: for one's own Dataset and DataLoader."""
    return Transform(Preprocess.of(model))


def open_picture(source: Any, model: Any, name: str = "") -> Picture:
    """A path, bytes, PIL image or uint8 array, preprocessed as `model` (or a Preprocess) wants it, its crop remembered."""
    preprocess = model if isinstance(model, Preprocess) else Preprocess.of(model)
    if isinstance(source, str | Path):
        name = name or str(source)
        image = decode(source, name)
        digest = sha256_file(source)
    else:
        image = decode(source, name)
        digest = sha256_bytes(source if isinstance(source, bytes) else np.ascontiguousarray(np.asarray(image)).tobytes())
    return Picture(preprocess.tensor(image), viewable(image), preprocess.box(*size_of(image)), name or type(source).__name__, digest)


def viewable(image: Decoded) -> Image.Image:
    """An image as something to look at: other than 1 or 3 channels show their first three, or the mean of two."""
    if isinstance(image, Image.Image):
        return image
    if image.shape[2] >= 3:
        return Image.fromarray(np.ascontiguousarray(image[:, :, :3]))
    return Image.fromarray(np.ascontiguousarray(image.mean(axis=2).round().astype(np.uint8)))


def size_of(image: Decoded) -> tuple[int, int]:
    """Width, height."""
    return image.size if isinstance(image, Image.Image) else (image.shape[1], image.shape[0])


def _with_channels(image: Decoded, channels: int) -> Decoded:
    if isinstance(image, Image.Image):
        if channels in (1, 3):
            mode = "L" if channels == 1 else "RGB"
            return image if image.mode == mode else image.convert(mode)
        have = len(image.getbands())
    else:
        have = image.shape[2]
        if channels == have:
            return image
        if channels in (1, 3) and have == 4:  # red, green, blue and something else
            return Image.fromarray(np.ascontiguousarray(image[:, :, :3])).convert("L" if channels == 1 else "RGB")
    raise DataError(
        f"the picture has {have} channels, the model wants {channels}", "use a model with as many channels, or convert the pictures"
    )


def resized(image: Decoded, size: tuple[int, int], interpolation: str, box: tuple[float, float, float, float] | None = None) -> Decoded:
    """An image (or its `box`) at width × height `size`; of other than 1 or 3 channels, each by itself."""
    how = _INTERPOLATIONS[interpolation]
    if isinstance(image, Image.Image):
        return image.resize(size, how, box=box)
    planes = [Image.fromarray(np.ascontiguousarray(image[:, :, channel])).resize(size, how, box=box) for channel in range(image.shape[2])]
    return np.stack([np.asarray(plane) for plane in planes], axis=2)


def _planes(image: Decoded) -> np.ndarray:
    """(C, H, W), writable."""
    values = np.array(image)
    return values[None] if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1))
