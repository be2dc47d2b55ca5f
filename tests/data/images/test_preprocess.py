"""What reaches the model equals a plain, slow reference, and the crop can be undone."""

from __future__ import annotations

import dataclasses
import io
import math
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import vitral
from vitral.base.errors import DataError, UsageError
from vitral.base.origin import Origin, fact
from vitral.base.picture import Box
from vitral.config import ModelConfig
from vitral.data.images.decode import decode
from vitral.data.images.preprocess import Preprocess, open_picture

FILTERS = {
    "box": (0.5, lambda x: float(-0.5 < x <= 0.5)),
    "bilinear": (1.0, lambda x: max(0.0, 1 - abs(x))),
    "bicubic": (2.0, lambda x: _cubic(abs(x))),
    "lanczos": (3.0, lambda x: float(np.sinc(x) * np.sinc(x / 3)) if abs(x) < 3 else 0.0),
}
ORIENT = {  # how the stored pixels must be turned, by EXIF orientation: written with NumPy, not with Pillow
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}


def _cubic(x: float, a: float = -0.5) -> float:
    if x < 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def slow_resize(line: np.ndarray, size: int, name: str) -> np.ndarray:
    """Axis 0 of `line` resized by weighing all of its pixels, one output at a time."""
    support, weight = FILTERS[name]
    scale = len(line) / size
    stretch = max(1.0, scale)
    out = []
    for place in range(size):
        centre = (place + 0.5) * scale
        low, high = max(0, int(centre - support * stretch + 0.5)), min(len(line), int(centre + support * stretch + 0.5))
        weights = np.array([weight((x - centre + 0.5) / stretch) for x in range(low, high)])
        out.append(np.tensordot(weights / weights.sum(), line[low:high], 1))
    # Each pass is rounded to bytes, as in any 8-bit library.
    return np.clip(np.floor(np.array(out) + 0.5), 0, 255)


def slow_reference(upright: np.ndarray, preprocess: Preprocess) -> np.ndarray:
    """(H, W, C) bytes → normalised (C, H, W)."""
    values = upright.astype(np.float64)
    if preprocess.channels == 1 and values.shape[2] == 3:
        values = np.floor(values @ [0.299, 0.587, 0.114] + 0.5)[..., None]
    if preprocess.channels == 3 and values.shape[2] == 1:
        values = values.repeat(3, 2)
    height, width = values.shape[:2]
    wanted = preprocess.image_size
    if preprocess.resize == "squash":
        resized = wanted
    else:
        least = [int(side / preprocess.crop + 1e-9) for side in wanted]
        factor = max(least[0] / height, least[1] / width)
        resized = tuple(max(low, math.floor(side * factor + 1e-6)) for low, side in zip(least, (height, width), strict=True))
    if resized != (height, width):
        if resized[1] != width:
            values = slow_resize(values.swapaxes(0, 1), resized[1], preprocess.interpolation).swapaxes(0, 1)
        if resized[0] != height:
            values = slow_resize(values, resized[0], preprocess.interpolation)
    top, left = (round((have - want) / 2) for have, want in zip(resized, wanted, strict=True))
    values = values[top : top + wanted[0], left : left + wanted[1]]
    return ((values / 255 - np.array(preprocess.mean)) / np.array(preprocess.std)).transpose(2, 0, 1)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_equals_the_slow_reference(data: st.DataObject) -> None:
    draw = data.draw
    height, width = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    mode = draw(st.sampled_from(["RGB", "L", "P", "RGBA", "I;16", "CMYK"]))
    orientation = draw(st.integers(1, 8))
    preprocess = Preprocess(
        (draw(st.integers(1, 24)), draw(st.integers(1, 24))),
        draw(st.sampled_from([1, 3])),
        (0.4,),
        (0.3,),
        resize=draw(st.sampled_from(["short", "squash"])),
        crop=draw(st.sampled_from([1.0, 0.9, 0.5])),
        interpolation=draw(st.sampled_from(sorted(FILTERS))),
    )
    random = np.random.default_rng(draw(st.integers(0, 9999)))
    stored, upright = make(mode, random, height, width)
    upright = ORIENT[orientation](upright)
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(buffer, "TIFF" if mode == "CMYK" else "PNG", exif=exif)
    picture = open_picture(buffer.getvalue(), preprocess)
    assert picture.original.size == (upright.shape[1], upright.shape[0])
    assert picture.tensor.shape == (preprocess.channels, *preprocess.image_size)
    # One step of a byte for each of the three roundings (grey, across, down): fixed-point sums against exact ones.
    steps = np.abs(picture.tensor.numpy() - slow_reference(upright, preprocess)) * 255 * 0.3
    assert steps.max() <= 2.01


def make(mode: str, random: np.random.Generator, height: int, width: int) -> tuple[Image.Image, np.ndarray]:
    """A picture of this mode and what a viewer would show of it, (H, W, C)."""
    colours = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if mode == "L":
        return Image.fromarray(colours[..., 0]), colours[..., :1]
    if mode == "I;16":
        deep = random.integers(0, 65536, (height, width), dtype=np.uint16)
        return Image.fromarray(deep), np.floor(deep / 257 + 0.5).astype(np.uint8)[..., None]
    if mode == "P":
        table = random.integers(0, 256, (7, 3), dtype=np.uint8)
        numbers = random.integers(0, 7, (height, width), dtype=np.uint8)
        image = Image.fromarray(numbers)
        image.putpalette(table.tobytes())
        return image, table[numbers]
    if mode == "RGBA":
        alpha = random.integers(0, 2, (height, width, 1), dtype=np.uint8)
        return Image.fromarray(np.dstack([colours, alpha * 255])), np.where(alpha == 1, colours, 255).astype(np.uint8)
    if mode == "CMYK":
        inks = np.dstack([255 - colours, np.zeros((height, width, 1), np.uint8)])
        return Image.frombytes("CMYK", (width, height), inks.tobytes()), colours
    return Image.fromarray(colours), colours


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.integers(20, 120),
    st.integers(20, 120),
    st.sampled_from(["short", "squash"]),
    st.sampled_from([1.0, 0.875, 0.6]),
    st.integers(0, 999),
)
def test_marked_pixel_is_put_back(height: int, width: int, resize: str, crop: float, seed: int) -> None:
    """A white mark inside the crop is found in the input, and the box leads back to it."""
    preprocess = Preprocess((32, 48), 1, (0.0,), (1.0,), resize=resize, crop=crop, interpolation="bilinear")
    box = preprocess.box(width, height)
    assert box.left >= -1e-9 and box.top >= -1e-9 and box.right <= width + 1e-9 and box.bottom <= height + 1e-9
    random = np.random.default_rng(seed)
    margin = 3 * max(box.width / 48, box.height / 32, 1)
    if box.width < 2 * margin + 1 or box.height < 2 * margin + 1:
        return
    x = int(random.uniform(box.left + margin, box.right - margin))
    y = int(random.uniform(box.top + margin, box.bottom - margin))
    pixels = np.zeros((height, width), np.uint8)
    pixels[y, x] = 255
    tensor = open_picture(pixels, preprocess).tensor[0].double()
    if tensor.sum() < 0.02:
        return  # a mark that rounding to bytes has erased
    rows, columns = torch.arange(32) + 0.5, torch.arange(48) + 0.5
    found = (tensor.sum(0) @ columns.double() / tensor.sum()).item(), (tensor.sum(1) @ rows.double() / tensor.sum()).item()
    back = box.to_original(*found, (32, 48))
    # Centres of pixels lie at +½; rounding to bytes moves the centre of mass by less than half an input pixel.
    assert abs(back[0] - (x + 0.5)) <= 0.5 * max(1, box.width / 48) + 0.02
    assert abs(back[1] - (y + 0.5)) <= 0.5 * max(1, box.height / 32) + 0.02


def test_the_box_follows_each_side_by_its_own_scale() -> None:
    """21 × 10 becomes 8 × 4: a pixel is 2.625 wide and 2.5 high, because sides are whole numbers."""
    wide, tall = (Preprocess((4, 4), 1).box(*size) for size in ((21, 10), (10, 21)))
    assert (wide.left, wide.top, wide.right, wide.bottom) == (5.25, 0, 15.75, 10)
    assert (tall.left, tall.top, tall.right, tall.bottom) == (0, 5.25, 10, 15.75)


def test_same_as_torchvision_two_steps() -> None:
    """timm's and torchvision's evaluation: resize the short side, cut the centre; pixel for pixel."""
    from torchvision import transforms

    random = np.random.default_rng(3)
    for height, width in ((100, 150), (333, 217), (224, 224), (50, 60)):
        image = Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        theirs = transforms.Compose(
            [transforms.Resize(248, transforms.InterpolationMode.BICUBIC), transforms.CenterCrop(224), transforms.PILToTensor()]
        )(image)
        ours = Preprocess((224, 224), 3, crop=0.9, interpolation="bicubic").pixels(image)
        assert np.array_equal(ours, np.asarray(theirs))


def test_a_long_strip_needs_no_enormous_middle_picture() -> None:
    strip = np.zeros((1, 60_000, 3), np.uint8)
    strip[:, 30_000] = 255
    picture = open_picture(strip, Preprocess((64, 64), 3, (0.0,), (1.0,), interpolation="nearest"))
    assert picture.box.width == pytest.approx(1, abs=1e-3)
    assert picture.tensor.shape == (3, 64, 64)
    assert bool((picture.tensor[:, :, :32] == 0).all() and (picture.tensor[:, :, 32:] == 1).all()), "the middle of the strip, not all of it"


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("side", [24, 90], ids=["smaller", "larger"])
def test_a_random_crop_is_nearly_pillows(channels: int, side: int) -> None:
    from sklearn.datasets import load_sample_image

    photograph = load_sample_image("china.jpg")
    values = np.concatenate([photograph, photograph[:, :, :1]], axis=2)[:, :, : channels if channels > 1 else 3]
    box, preprocess = Box(30, 41, 30 + side, 41 + side + 7), Preprocess((48, 40), channels)
    image = decode(np.ascontiguousarray(values))
    whole = image.crop((30, 41, 30 + side, 48 + side)) if isinstance(image, Image.Image) else image[41 : 48 + side, 30 : 30 + side]
    expected = dataclasses.replace(preprocess, resize="squash").pixels(whole).astype(int)
    found = preprocess.cut(image, box)
    assert found.dtype == torch.uint8 and found.is_contiguous() and found.shape == expected.shape
    different = np.abs(found.numpy() - expected)
    assert different.max() <= 2 and different.mean() < 0.1
    lanczos = dataclasses.replace(preprocess, interpolation="lanczos")
    assert np.array_equal(lanczos.cut(image, box).numpy(), lanczos.pixels(image, box)), "by Pillow, where PyTorch has no such filter"


def test_one_pixel_fills_the_input() -> None:
    picture = open_picture(np.full((1, 1, 3), 255, np.uint8), Preprocess((16, 8), 3, (0.0,), (1.0,)))
    assert picture.tensor.shape == (3, 16, 8) and (picture.tensor == 1).all()


def test_any_channels() -> None:
    five = np.random.default_rng(0).integers(0, 256, (12, 10, 5), dtype=np.uint8)
    preprocess = Preprocess((6, 6), 5, (0.5,), (0.5,))
    picture = open_picture(five, preprocess)
    alone = [Preprocess((6, 6), 1, (0.5,), (0.5,))(np.ascontiguousarray(five[:, :, c])).tensor for c in range(5)]
    assert torch.equal(picture.tensor, torch.cat(alone))
    with pytest.raises(DataError, match="3 channels"):
        open_picture(Image.new("RGB", (4, 4)), preprocess)


def test_of_a_model_and_back_into_its_origin() -> None:
    config = ModelConfig(image_size=(32, 48), patch_size=(16, 16), channels=1)
    origin = Origin(mean=fact((0.1, 0.2, 0.3)), std=fact((0.5, 0.5, 0.5)), crop=fact(0.9), resize=fact("squash"))
    preprocess = Preprocess.of(origin, config)
    assert (preprocess.image_size, preprocess.channels, preprocess.resize, preprocess.crop) == ((32, 48), 1, "squash", 0.9)
    assert preprocess.mean == pytest.approx((0.2,)) and preprocess.std == (0.5,)
    kept = preprocess.write_to(Origin(), ("a", "b"))
    assert Preprocess.of(kept, config) == preprocess
    assert kept.mean.declared and kept.classes.value == ("a", "b")


def test_impossible_settings_are_refused() -> None:
    for wrong in ({"interpolation": "cubic"}, {"resize": "stretch"}, {"crop": 0.0}, {"std": (0.0,)}, {"mean": (0.1, 0.2)}):
        with pytest.raises(UsageError, match=r"interpolation|resize|crop|std|mean"):
            Preprocess((8, 8), 3, **wrong)  # type: ignore[arg-type]


def test_batch_and_digest() -> None:
    preprocess = Preprocess((8, 8), 3)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8))
    first = preprocess(image)
    assert preprocess.batch([first, image]).shape == (2, 3, 8, 8)
    assert len(first.digest) == 64 and first.digest == preprocess(image).digest


class Files(torch.utils.data.Dataset[torch.Tensor]):
    """Anybody's own Dataset."""

    def __init__(self, paths: list[Path], transform: Callable[[Image.Image], torch.Tensor]) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> torch.Tensor:
        with Image.open(self.paths[number]) as image:
            return self.transform(image)


@pytest.mark.parametrize("resize", ["short", "squash"])
def test_a_transform_for_ones_own_loader_equals_open_picture(tmp_path: Path, resize: str) -> None:
    model = vitral.create("tiny", image_size=(32, 48))
    model.origin = Origin(mean=fact((0.1, 0.2, 0.3)), std=fact((0.4, 0.5, 0.6)), crop=fact(0.9), resize=fact(resize))
    draw = np.random.default_rng(0)
    turned = Image.Exif()
    turned[0x0112] = 6
    paths = [tmp_path / name for name in ("rgb.png", "grey.png", "clear.png", "turned.jpg")]
    for path, shape in zip(paths, ((70, 90, 3), (50, 40), (60, 60, 4), (64, 80, 3)), strict=True):
        image = Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8))
        image.save(path, **({"exif": turned} if path.suffix == ".jpg" else {}))
    own = vitral.transform(model)
    loader = torch.utils.data.DataLoader(Files(paths, pickle.loads(pickle.dumps(own))), batch_size=3, num_workers=2)
    expected = torch.stack([open_picture(path, model).tensor for path in paths])
    assert torch.equal(torch.cat(list(loader)), expected)
    assert "(3, 32×48) float32" in repr(own) and ("cover 35×53" if resize == "short" else "squashed") in repr(own)


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "L"), (3, "RGB"), (4, "RGB")])
def test_normalisation_is_undone_to_the_bit(channels: int, mode: str) -> None:
    preprocess = Preprocess((4, 4), channels, (0.3,), (0.2,))
    pixels = np.random.default_rng(0).integers(0, 256, (channels, 4, 4), dtype=np.uint8)
    shown = preprocess.as_image(preprocess.normalise(torch.from_numpy(pixels)))
    assert shown.mode == mode
    if channels in (1, 3):
        assert np.array_equal(np.asarray(shown).reshape(4, 4, channels).transpose(2, 0, 1), pixels)
